"""A REST front per test, stopped after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack

import httpx
import pytest_asyncio

from local.front.access_log import Sink
from local.front.server import FrontOptions, RestFront
from local.template.spec import AuthorizerSpec, GatewayResponseSpec, RestApiSpec, RouteSpec
from tests.integration.front.harness import (
    ACCOUNT,
    REGION,
    STAGE,
    Functions,
    Handler,
    Served,
    ServeFront,
    echo,
)


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[ServeFront]:
    """Serve routes: `await serve(route(...), Echo=handler, authorizers=[...], options=FrontOptions(...))`."""
    async with AsyncExitStack() as stack:

        async def start(
            *routes: RouteSpec,
            authorizers: Iterable[AuthorizerSpec] = (),
            responses: Iterable[GatewayResponseSpec] = (),
            options: FrontOptions | None = None,
            access_log: Sink = None,
            access_log_format: str | None = None,
            **handlers: Handler,
        ) -> Served:
            functions = Functions({"Echo": echo, **handlers})
            api = RestApiSpec(
                logical_id="Api",
                stage=STAGE,
                routes=routes,
                authorizers={spec.name: spec for spec in authorizers},
                gateway_responses=_by_type(responses),
                access_log_format=access_log_format,
            )
            front = RestFront(
                api, functions, account_id=ACCOUNT, region=REGION, access_log=access_log, options=options
            )
            url = await front.start()
            stack.push_async_callback(front.stop)
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=10))
            return Served(front, functions, client)

        yield start


def _by_type(responses: Iterable[GatewayResponseSpec]) -> Mapping[str, GatewayResponseSpec]:
    return {spec.response_type: spec for spec in responses}

"""REST front: an HTTP server that answers as API Gateway's REST API in front of the local functions."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from multidict import CIMultiDict

from local.front import api_page
from local.front.access_log import AccessLog, Sink
from local.front.authorizer import Authorizer
from local.front.bodies import read_body, refuse_framing, refuse_oversize
from local.front.connection import MAX_HEADER_BYTES, GatewayServer
from local.front.events import EventBuilder, Headers, split_target
from local.front.exchange import ApiIdentity, Exchange, new_ids, new_trace_id
from local.front.firewall import Firewall
from local.front.gateway_responses import GatewayError, GatewayResponses
from local.front.integration import Integration
from local.front.mock import Mock
from local.front.replies import Reply
from local.front.routing import Match, Router
from local.front.throttle import Throttles
from local.template.spec import Invoker, RestApiSpec, Throttle, WebAclSpec

_LOG = logging.getLogger(__name__)
_SERVER = "indexmill-local"
_TRACE = "X-Amzn-Trace-Id"


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """Options of an API beyond its routes, from the template or from tests."""

    binary_media_types: tuple[str, ...] = ()
    decode_path_parameters: bool = False
    """Percent-decode `pathParameters`. AWS does not: they arrive as in the URL."""
    throttles: Mapping[str, Throttle] = field(default_factory=dict)
    """Limits by `"METHOD /path"`, with `"*"` for all others."""
    web_acl: WebAclSpec | None = None
    api_document: Path | None = None
    """OpenAPI document of the page at `/docs`, which AWS has not; None for no page."""
    body_timeout_s: float = 10.0
    """Of a body; a header has as long from its first byte on."""
    linger_s: float = 2.0
    """How long a refused body is read and discarded, so that the client receives the response."""
    stop_grace_s: float = 2.0
    monotonic: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time


class RestFront:
    """Serves one REST API on a loopback port until stopped."""

    def __init__(  # noqa: PLR0913
        self,
        api: RestApiSpec,
        invoker: Invoker,
        *,
        account_id: str,
        region: str,
        access_log: Sink = None,
        host: str = "127.0.0.1",
        port: int = 0,
        options: FrontOptions | None = None,
    ) -> None:
        self._options = options or FrontOptions()
        self._address = (host, port)
        digest = hashlib.sha256(api.logical_id.encode()).hexdigest()
        self._identity = ApiIdentity(account_id, digest[:10], region, api.stage)
        media_types = frozenset(name.lower() for name in self._options.binary_media_types)
        self._events = EventBuilder(digest[10:16], media_types, self._options.decode_path_parameters)
        self._router = Router(api.routes)
        self._authorizers = {
            name: Authorizer(spec, invoker, self._events, self._options.monotonic)
            for name, spec in api.authorizers.items()
        }
        if unknown := {r.authorizer for r in api.routes if r.authorizer} - self._authorizers.keys():
            raise ValueError(f"routes name unknown authorizers: {sorted(unknown)}")
        self._throttles = Throttles(self._options.throttles, self._options.monotonic)
        web_acl = self._options.web_acl
        self._firewall = Firewall(web_acl, self._options.monotonic) if web_acl else None
        self._responses = GatewayResponses(api.gateway_responses, api.edge_responses)
        self._mocks = {(r.method, r.path): Mock(r.mock) for r in api.routes if r.mock is not None}
        self._integration = Integration(invoker, self._options.monotonic)
        self._log = AccessLog(access_log, api.access_log_format)
        self._listener: asyncio.Server | None = None
        self._connections: GatewayServer | None = None

    @property
    def api_id(self) -> str:
        """Id of the API, as in `requestContext.apiId` and in method ARNs."""
        return self._identity.api_id

    async def start(self) -> str:
        """Bind the port; return the base URL (`http://127.0.0.1:PORT`, no trailing slash)."""
        self._log.open()
        limits = self._options.linger_s, self._options.body_timeout_s
        self._connections = GatewayServer(self._handle, self._refuse, *limits)
        host, port = self._address
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._connections, host, port, backlog=1024)
        self._address = (host, self._listener.sockets[0].getsockname()[1])
        return f"http://{host}:{self._address[1]}"

    async def stop(self) -> None:
        """Refuse new connections, let running requests finish for a short grace period, then cancel them."""
        if self._listener is None or self._connections is None:
            return
        self._listener.close()
        self._connections.pre_shutdown()
        await self._connections.shutdown(self._options.stop_grace_s)
        await asyncio.gather(self._integration.close(), *(a.close() for a in self._authorizers.values()))
        self._listener = None
        self._log.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = Headers.from_raw(request.raw_headers)
        exchange = self._open(request, headers)
        close = False
        try:
            reply = await self._answer(request, exchange, headers)
        except GatewayError as error:
            close = error.close
            reply = self._responses.render(error, exchange, headers.get("Accept"))
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 - after any error the client gets a response
            _LOG.exception("request %s failed in the gateway", exchange.request_id)
            reply = self._responses.render(GatewayError("DEFAULT_5XX"), exchange, headers.get("Accept"))
        response = self._finish(exchange, reply)
        if close:
            response.force_close()
        return response

    def _open(self, request: web.BaseRequest, headers: Headers) -> Exchange:
        """Start the record of a request and add the headers that the gateway itself sends to functions."""
        target = request.raw_path
        path, query = split_target(target if target.startswith("/") else request.rel_url.raw_path_qs)
        stage = f"/{self._identity.stage}"
        if path.startswith(stage + "/") and self._router.has(path.removeprefix(stage)):
            path = path.removeprefix(stage)
        source_ip = request.remote or "127.0.0.1"
        epoch_ms = int(self._options.wall_clock() * 1000)
        host = headers.get("Host") or ":".join(map(str, self._address))
        trace_id = headers.get(_TRACE) or ""
        exchange = Exchange(
            self._identity,
            *new_ids(),
            trace_id=trace_id if "Root=" in trace_id else new_trace_id(epoch_ms),
            started=self._options.monotonic(),
            epoch_ms=epoch_ms,
            method=request.method,
            path=path,
            query=query,
            protocol=f"HTTP/{request.version.major}.{request.version.minor}",
            host=host,
            source_ip=source_ip,
            user_agent=headers.get("User-Agent"),
        )
        headers.replace(_TRACE, exchange.trace_id)
        hops = [*headers.get_all("X-Forwarded-For"), source_ip]
        headers.replace("X-Forwarded-For", ", ".join(hops))
        headers.replace("X-Forwarded-Port", str(self._address[1]))
        headers.replace("X-Forwarded-Proto", "http")
        return exchange

    async def _answer(self, request: web.BaseRequest, exchange: Exchange, headers: Headers) -> Reply:
        refuse_framing(request)
        if sum(len(name) + len(value) + 4 for name, value in request.raw_headers) > MAX_HEADER_BYTES:
            raise GatewayError("DEFAULT_4XX", status=431, message="Request Header Fields Too Large")
        shown = self._options.api_document
        if shown is not None and (exchange.method, exchange.path) == ("GET", api_page.PATH):
            return Reply(200, list(api_page.HEADERS), await asyncio.to_thread(api_page.render, shown))
        body = None
        if self._firewall is not None:
            if self._firewall.needs_body(exchange):
                refuse_oversize(request)
                body = await read_body(request, self._options.body_timeout_s)
            if (blocked := self._firewall.check(exchange, headers, len(body or b""))) is not None:
                return blocked
        match = self._match(exchange)
        refuse_oversize(request)
        if match.route.authorizer is not None:
            await self._authorizers[match.route.authorizer].authorize(exchange, match, headers)
        if body is None:
            body = await read_body(request, self._options.body_timeout_s)
        if (mock := self._mocks.get((match.route.method, match.route.path))) is not None:
            return mock.reply(exchange, headers, match.parameters)
        event = self._events.proxy_event(exchange, match, headers, body)
        return await self._integration.call(match.route, event, exchange)

    def _match(self, exchange: Exchange) -> Match:
        match = self._router.find(exchange.method, exchange.path)
        if match is None:
            raise GatewayError("MISSING_AUTHENTICATION_TOKEN")
        exchange.resource_path, exchange.resource_id = match.route.path, match.resource_id
        if not self._throttles.allow(exchange.method, match.route.path):
            raise GatewayError("THROTTLED")
        return match

    def _refuse(self, request: web.BaseRequest, status: int) -> web.Response:
        """Answer broken HTTP, or an error of the server itself."""
        exchange = self._open(request, Headers())
        kind = "DEFAULT_5XX" if status >= 500 else "DEFAULT_4XX"
        message = "Request Timeout" if status == 408 else None
        error = GatewayError(kind, status=status, message=message)
        return self._finish(exchange, self._responses.render(error, exchange))

    def _finish(self, exchange: Exchange, reply: Reply) -> web.Response:
        """Add the gateway's own headers, log, and return the response to send."""
        headers: CIMultiDict[str] = CIMultiDict(reply.headers)
        headers.setdefault("Content-Type", "application/json")
        headers["x-amzn-RequestId"] = exchange.request_id
        headers["x-amz-apigw-id"] = exchange.extended_request_id
        headers.setdefault(_TRACE, exchange.trace_id)
        headers["Server"] = _SERVER
        exchange.status = reply.status
        exchange.response_length = len(reply.body)
        exchange.response_latency = round((self._options.monotonic() - exchange.started) * 1000)
        self._log.write(exchange)
        return web.Response(status=reply.status, body=reply.body, headers=headers)

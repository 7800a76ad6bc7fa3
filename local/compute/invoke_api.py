"""Lambda's Invoke API over HTTP, so that the `lambda` client of any AWS SDK reaches the local functions."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import uuid
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from local.compute.faults import MAX_REQUEST_BYTES, HostStopped, PayloadTooLarge
from local.compute.host import LambdaHost
from local.compute.invocation import LogTail
from local.spec import InvokeResult, Throttled

_ROOT = "/2015-03-31/functions/"
_MAX_EVENT_BYTES = 1 << 20
_RETRY_S = (0.1, 0.2, 0.5, *(1.0,) * 60)
_LOG = logging.getLogger(__name__)


class InvokeApi:
    """`POST /2015-03-31/functions/{name}/invocations` on a free loopback port."""

    def __init__(self, host: LambdaHost) -> None:
        self._host = host
        self._runner: web.ServerRunner | None = None
        self._events: set[asyncio.Task[None]] = set()
        self.url = ""
        """The endpoint, for `AWS_ENDPOINT_URL_LAMBDA`; empty until started."""

    async def start(self, port: int = 0) -> str:
        """Listen on 127.0.0.1; return the endpoint's URL."""
        self._runner = web.ServerRunner(web.Server(self._handle, request_factory=_request))
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self.url

    async def stop(self) -> None:
        """Close the port and drop events that still wait."""
        for task in self._events:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = unquote(request.rel_url.raw_path)
        name, _, rest = path.removeprefix(_ROOT).rpartition("/")
        if request.method != "POST" or not path.startswith(_ROOT) or rest != "invocations":
            return _error(404, "ResourceNotFoundException", f"Unknown path: {request.method} {path}")
        try:
            return await self._invoke(request, _function_name(name))
        except KeyError:
            arn = (
                f"arn:aws:lambda:{self._host.region}:{self._host.account_id}:function:{_function_name(name)}"
            )
            return _error(404, "ResourceNotFoundException", f"Function not found: {arn}")
        except Throttled:
            reason = {"Reason": "ReservedFunctionConcurrentInvocationLimitExceeded"}
            return _error(429, "TooManyRequestsException", "Rate Exceeded.", reason)
        except (PayloadTooLarge, web.HTTPRequestEntityTooLarge):
            message = (
                f"Request must be smaller than {MAX_REQUEST_BYTES} bytes for the InvokeFunction operation"
            )
            return _error(413, "RequestTooLargeException", message)
        except HostStopped:
            return _error(503, "ServiceException", "The service is stopping.")

    async def _invoke(self, request: web.BaseRequest, name: str) -> web.StreamResponse:
        self._host.spec(name)
        payload = await request.read() or b"{}"
        try:
            json.loads(payload)
        except ValueError as error:
            message = f"Could not parse request body into json: {error}"
            return _error(400, "InvalidRequestContentException", message)
        kind = request.headers.get("X-Amz-Invocation-Type", "RequestResponse")
        if kind == "DryRun":
            return web.Response(status=204)
        trace = request.headers.get("X-Amzn-Trace-Id")
        if kind == "Event":
            if len(payload) > _MAX_EVENT_BYTES:
                raise PayloadTooLarge
            task = asyncio.get_running_loop().create_task(self._deliver(name, payload, trace))
            self._events.add(task)
            task.add_done_callback(self._events.discard)
            return web.Response(status=202, headers={"x-amzn-RequestId": str(uuid.uuid4())})
        tail = LogTail() if request.headers.get("X-Amz-Log-Type") == "Tail" else None
        return _result(await self._host.invoke(name, payload, trace_id=trace, tail=tail), tail)

    async def _deliver(self, name: str, payload: bytes, trace: str | None) -> None:
        """An asynchronous invocation: again while throttled; its result is nobody's."""
        for pause in _RETRY_S:
            try:
                result = await self._host.invoke(name, payload, trace_id=trace)
            except Throttled:
                await asyncio.sleep(pause)
                continue
            except HostStopped:
                return
            if result.function_error is not None:
                _LOG.warning("event for %s failed: %s", name, result.payload.decode("utf-8", "replace"))
            return
        _LOG.warning("event for %s dropped: throttled for too long", name)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    # The limit is exclusive.
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=MAX_REQUEST_BYTES + 1
    )


def _function_name(reference: str) -> str:
    """The name in a name, a partial or a whole ARN, each with or without a qualifier."""
    parts = reference.split(":")
    if "function" in parts[:-1]:
        return parts[parts.index("function") + 1]
    return parts[0]


def _result(result: InvokeResult, tail: LogTail | None) -> web.Response:
    headers = {"x-amzn-RequestId": result.request_id, "X-Amz-Executed-Version": "$LATEST"}
    if result.function_error is not None:
        headers["X-Amz-Function-Error"] = result.function_error
    if tail is not None:
        headers["X-Amz-Log-Result"] = base64.b64encode(tail.value()).decode()
    return web.Response(body=result.payload, headers=headers, content_type="application/json")


def _error(status: int, code: str, message: str, more: dict[str, str] | None = None) -> web.Response:
    kind = "User" if status < 500 else "Service"
    body = {"Type": kind, "Message": message, **(more or {})}
    headers = {"x-amzn-ErrorType": code, "x-amzn-RequestId": str(uuid.uuid4())}
    return web.Response(
        text=json.dumps(body), status=status, headers=headers, content_type="application/json"
    )

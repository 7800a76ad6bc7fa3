"""Lambda's API over HTTP, so that the `lambda` client of any AWS SDK reaches the local functions.

Invoke is here; the operations on functions and on event source mappings have modules of their own.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import uuid
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from local.compute.error_documents import MAX_REQUEST_BYTES, HostStopped, PayloadTooLarge
from local.compute.host import LambdaHost
from local.compute.invocation import LogTail
from local.compute.lambda_functions import FunctionConfigurations, unknown_function
from local.compute.lambda_mappings import EventSourceMappings
from local.compute.lambda_responses import OperationError, error_response, json_response
from local.template.spec import InvokeResult, Throttled, function_name

_ROOT = "/2015-03-31/functions/"
_MAX_EVENT_BYTES = 1 << 20
_RETRY_S = (0.1, 0.2, 0.5, *(1.0,) * 60)
_LOG = logging.getLogger(__name__)


class InvokeApi:
    """Lambda's endpoint on a free loopback port; `mappings` are the running event sources, if any."""

    def __init__(self, host: LambdaHost, mappings: EventSourceMappings | None = None) -> None:
        self._host = host
        self._functions = FunctionConfigurations(host)
        self._mappings = mappings or EventSourceMappings(host)
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
        try:
            name, _, rest = path.removeprefix(_ROOT).rpartition("/")
            if request.method == "POST" and path.startswith(_ROOT) and rest == "invocations":
                return await self._invoke(request, function_name(name))
            return await self._manage(request, path)
        except OperationError as error:
            return error.response()
        except Throttled:
            reason = {"Reason": "ReservedFunctionConcurrentInvocationLimitExceeded"}
            return error_response(429, "TooManyRequestsException", "Rate Exceeded.", reason)
        except (PayloadTooLarge, web.HTTPRequestEntityTooLarge):
            message = (
                f"Request must be smaller than {MAX_REQUEST_BYTES} bytes for the InvokeFunction operation"
            )
            return error_response(413, "RequestTooLargeException", message)
        except HostStopped:
            return error_response(503, "ServiceException", "The service is stopping.")

    async def _manage(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Handle every operation but Invoke."""
        version, _, rest = path.strip("/").partition("/")
        kind, _, name = rest.partition("/")
        # Function names contain no slash.
        name, _, detail = name.partition("/")
        answer: dict[str, Any] | None = None
        match request.method, version, kind, bool(name), detail:
            case "GET", "2015-03-31", "functions", False, "":
                answer = self._functions.list(request.query)
            case "GET", "2015-03-31", "functions", True, "":
                answer = self._functions.get(name)
            case "GET", "2015-03-31", "functions", True, "configuration":
                answer = self._functions.configuration(name)
            case "GET", "2019-09-30", "functions", True, "concurrency":
                answer = self._functions.concurrency(name)
            case "GET", "2015-03-31", "event-source-mappings", False, "":
                answer = self._mappings.list(request.query)
            case "GET", "2015-03-31", "event-source-mappings", True, "":
                answer = self._mappings.get(name)
            case "PUT", "2015-03-31", "event-source-mappings", True, "":
                return json_response(self._mappings.update(name, await request.read()), 202)
        if answer is None:
            message = f"The local cloud has no operation {request.method} {path}"
            return error_response(404, "UnknownOperationException", message)
        return json_response(answer)

    async def _invoke(self, request: web.BaseRequest, name: str) -> web.StreamResponse:
        if not self._host.knows(name):
            raise unknown_function(self._host, name)
        payload = await request.read() or b"{}"
        try:
            json.loads(payload)
        except ValueError as error:
            message = f"Could not parse request body into json: {error}"
            return error_response(400, "InvalidRequestContentException", message)
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
        """Run an asynchronous invocation, with retries while throttled; its result is discarded."""
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


def _result(result: InvokeResult, tail: LogTail | None) -> web.Response:
    headers = {"x-amzn-RequestId": result.request_id, "X-Amz-Executed-Version": "$LATEST"}
    if result.function_error is not None:
        headers["X-Amz-Function-Error"] = result.function_error
    if tail is not None:
        headers["X-Amz-Log-Result"] = base64.b64encode(tail.value()).decode()
    return web.Response(body=result.payload, headers=headers, content_type="application/json")

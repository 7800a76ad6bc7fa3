"""Reading of request bodies within the gateway's limits."""

from __future__ import annotations

import asyncio

from aiohttp import HttpVersion10, HttpVersion11, StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from local.front.gateway_responses import GatewayError

MAX_BODY_BYTES = 10 * 1024 * 1024


def refuse_framing(request: web.BaseRequest) -> None:
    """Raise the GatewayError for a request with ambiguous framing, which parties may split differently."""
    encodings = request.headers.getall("Transfer-Encoding", [])
    other_than_chunked = any(each.strip().lower() != "chunked" for each in encodings)
    too_old = request.version < HttpVersion10 or (encodings and request.version < HttpVersion11)
    if other_than_chunked or too_old:
        raise _closing(GatewayError("DEFAULT_4XX", status=400))


def refuse_oversize(request: web.BaseRequest) -> None:
    """Raise REQUEST_TOO_LARGE when the declared length alone is too large."""
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise _closing(GatewayError("REQUEST_TOO_LARGE", reason="content-length"))


async def read_body(request: web.BaseRequest, deadline_s: float) -> bytes:
    """Return the whole body, at most 10 MiB, read within `deadline_s` seconds. Raises GatewayError.

    A client that expects `100 Continue` gets it. Raises ConnectionError when the client disconnects.
    """
    if not request.can_read_body:
        return b""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        if request.content.is_eof():  # complete already: the common case, and it needs no timer
            whole = request.content.read_nowait()
            _check_size(len(whole))
            return whole
        async with asyncio.timeout(deadline_s):
            return await _read_chunks(request.content)
    except TimeoutError as error:
        raise _closing(GatewayError("DEFAULT_4XX", status=408, message="Request Timeout")) from error
    except (web.RequestPayloadError, HttpProcessingError) as error:
        raise _closing(GatewayError("BAD_REQUEST_BODY", reason=type(error).__name__)) from error


async def _read_chunks(content: StreamReader) -> bytes:
    body = bytearray()
    while chunk := await content.readany():
        body += chunk
        _check_size(len(body))
    return bytes(body)


def _check_size(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise _closing(GatewayError("REQUEST_TOO_LARGE", reason="body"))


def _closing(error: GatewayError) -> GatewayError:
    error.close = True
    return error

"""HTTP side of every service: FastAPI app factory, Lambda handler, error envelope, strict JSON bodies."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, NoReturn

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from mangum import Mangum
from starlette.exceptions import HTTPException

from indexmill.contracts.errors import CallerError, ErrorCode, IndexmillError
from indexmill.contracts.identity import CallerContext
from indexmill.platform.meter import METER
from indexmill.platform.observability import Observability

_SERVER_ERROR = 500
_MAX_RESPONSE_BYTES = 6_291_456
"""Lambda refuses to return more than 6 MiB, counted in the JSON that its runtime client sends."""
_MOST_PER_CHARACTER = 6
"""Bytes of one character in that JSON, at most."""
SECURITY_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "strict-transport-security": "max-age=31536000",
}
"""Headers of every answer, the gateway's own included: text of pages is data, whatever it looks like."""
_SOUND_ID = re.compile(r"[A-Za-z0-9-]{1,64}")

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


class _StrictRequest(Request):
    """A request whose JSON was already parsed by our own rules."""

    def __init__(self, request: Request, body: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = body
        self._json = value


def json_route(max_body_bytes: int) -> type[APIRoute]:
    """Return the route class of endpoints that take JSON of at most `max_body_bytes`."""

    class JsonRoute(APIRoute):
        """Checks headers, size and JSON before FastAPI sees the body."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            original = super().get_route_handler()
            takes_body = self.body_field is not None

            async def handle(request: Request) -> Response:
                if _api_keys(request) > 1:
                    raise CallerError(ErrorCode.INVALID_API_KEY, "Send exactly one X-API-Key header.")
                if takes_body:
                    body = await _checked_body(request, max_body_bytes)
                    request = _StrictRequest(request, body, read_json(body))
                return await original(request)

            return handle

    return JsonRoute


def _api_keys(request: Request) -> int:
    # The event knows: on the way here the values of one header were joined into one.
    headers = request.scope.get("aws.event", {}).get("multiValueHeaders") or {}
    return sum(len(values) for name, values in headers.items() if name.lower() == "x-api-key")


async def _checked_body(request: Request, limit: int) -> bytes:
    content_type = request.headers.get("content-type", "").lower()
    media_type, _, parameters = content_type.partition(";")
    if media_type.strip() != "application/json":
        raise CallerError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "Send the body as application/json.")
    if "charset" in parameters and "utf-8" not in parameters:
        raise CallerError(ErrorCode.INVALID_ENCODING, "The body must be UTF-8.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise CallerError(ErrorCode.UNSUPPORTED_ENCODING, "Send the body without a content encoding.")
    body = await request.body()
    if len(body) > limit:
        raise CallerError(ErrorCode.PAYLOAD_TOO_LARGE, f"The body may have at most {limit} bytes.")
    return body


def create_app(title: str, routers: list[APIRouter], observability: Observability) -> FastAPI:
    """Build a service's app: its routers, and our envelope for whatever goes wrong."""
    app = FastAPI(title=title, redirect_slashes=False, docs_url=None, redoc_url=None, openapi_url=None)
    for router in routers:
        app.include_router(router)

    async def on_error(request: Request, error: Exception) -> Response:
        known = _as_known(error)
        if known.http_status >= _SERVER_ERROR:
            observability.log.error("request.failed", exc_info=error, extra={"code": known.code})
        return envelope(known, _own_id(request))

    for kind in (IndexmillError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, on_error)
    return app


def lambda_handler(app: FastAPI, observability: Observability) -> Handler:
    """Wrap `app`; every answer carries X-Request-Id, and none is larger than Lambda can return."""
    # Mangum would run the app's lifespan on every event: clients live at module scope instead.
    mangum = Mangum(app, lifespan="off")

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        METER.begin_request()
        reply: dict[str, Any] = mangum(event, context)
        own_id = request_id(event)
        reply["headers"] = {**reply.get("headers", {}), **SECURITY_HEADERS, "x-request-id": own_id}
        if _is_too_large(reply):
            reply = _too_large(own_id)
        observability.flush()
        METER.end()
        return reply

    return handler


def _is_too_large(reply: dict[str, Any]) -> bool:
    # The exact size takes as long as the encoding itself: only what could be too large is measured.
    if len(reply.get("body") or "") <= _MAX_RESPONSE_BYTES // _MOST_PER_CHARACTER:
        return False
    return len(json.dumps(reply, ensure_ascii=False).encode()) > _MAX_RESPONSE_BYTES


def _too_large(own_id: str) -> dict[str, Any]:
    error = {
        "code": ErrorCode.RESPONSE_TOO_LARGE,
        "message": "The answer would be larger than 6 MB.",
        "request_id": own_id,
        "hint": "Use the asynchronous endpoint, POST /orchestrator/jobs.",
    }
    return {
        "statusCode": 413,
        "headers": {**SECURITY_HEADERS, "content-type": "application/json", "x-request-id": own_id},
        "body": json.dumps({"error": error}),
        "isBase64Encoded": False,
    }


def envelope(error: IndexmillError, request_id_: str) -> JSONResponse:
    """Return the one shape of an error answer."""
    message = error.message if error.code != ErrorCode.INTERNAL_ERROR else "Something went wrong on our side."
    content = {
        "code": error.code,
        "message": message,
        "request_id": request_id_,
        "field": error.field,
        "retry_after": error.retry_after,
        "hint": error.hint,
    }
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after is not None else {}
    body = {"error": {key: value for key, value in content.items() if value is not None}}
    return JSONResponse(body, status_code=error.http_status, headers=headers)


def _as_known(error: Exception) -> IndexmillError:
    if isinstance(error, IndexmillError):
        return error
    if isinstance(error, RequestValidationError):
        return _first_problem(error)
    if isinstance(error, HTTPException):
        if error.status_code in (404, 405):
            return CallerError(ErrorCode.NOT_FOUND, "There is nothing at this path.")
        return CallerError(ErrorCode.MALFORMED_JSON, "The request cannot be read.")
    return IndexmillError(ErrorCode.INTERNAL_ERROR, str(error))


def _first_problem(error: RequestValidationError) -> IndexmillError:
    """Name the first wrong field; never the value, which may be large or secret."""
    problem = error.errors()[0]
    location = ".".join(str(part) for part in problem["loc"])
    text = str(problem["msg"])[:200]
    return CallerError(ErrorCode.VALIDATION_ERROR, f"{location}: {text}"[:400], field=location[:200])


def _own_id(request: Request) -> str:
    return request_id(request.scope.get("aws.event", {}))


def _request_context(request: Request) -> dict[str, Any]:
    context: dict[str, Any] = request.scope.get("aws.event", {}).get("requestContext", {})
    return context


async def _caller(request: Request) -> CallerContext:
    claims = _request_context(request).get("authorizer") or {}
    caller_id = claims.get("caller_id")
    if not caller_id:
        raise CallerError(ErrorCode.INVALID_API_KEY, "A valid X-API-Key header is required.")
    return CallerContext(
        caller_id=str(caller_id),
        caller_type=str(claims.get("caller_type", "unknown")),
        tier=claims.get("tier") or None,
        scopes=tuple(str(claims.get("scopes", "")).split()),
        internal=str(claims.get("internal", "false")) == "true",
    )


async def _base_url(request: Request) -> str:
    """Return the API's address as this request used it: with the stage, or without on a domain of its own."""
    context = _request_context(request)
    own_path = request.scope.get("aws.event", {}).get("path") or request.url.path
    prefix = str(context.get("path", own_path)).removesuffix(own_path)
    scheme = request.headers.get("x-forwarded-proto", "https")
    host = context.get("domainName") or request.headers.get("host", "")
    return f"{scheme}://{host}{prefix}"


def request_id(event: dict[str, Any]) -> str:
    """Return the caller's X-Request-Id when it is a sound one, else the gateway's own; "" for neither."""
    headers = event.get("headers") or {}
    given = next((str(value) for name, value in headers.items() if name.lower() == "x-request-id"), "")
    if _SOUND_ID.fullmatch(given):
        return given
    return str(event.get("requestContext", {}).get("requestId", ""))


def tagged(content: bytes, if_none_match: str | None, headers: dict[str, str]) -> Response:
    """Return the JSON `content` with its ETag, or 304 when that is among `if_none_match`."""
    tag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**headers, "ETag": tag, "Cache-Control": "private, no-cache"}
    known = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
    if tag.removeprefix("W/") in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/json", headers=headers)


Caller = Annotated[CallerContext, Depends(_caller)]
"""The validated caller, from the gateway's authorizer."""
RequestId = Annotated[str, Depends(_own_id)]
"""Id of this request, for messages and logs."""
BaseUrl = Annotated[str, Depends(_base_url)]
"""Where this API is for the caller, without a slash at the end."""


_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_MAX_DIGITS = 400


def read_json(body: bytes) -> Any:
    """Parse a request body.

    Raises CallerError: malformed_json, invalid_encoding, or validation_error for NUL and lone surrogates.
    """
    if not body.strip():
        raise CallerError(ErrorCode.MALFORMED_JSON, "The request has no body; send a JSON object.")
    if body.startswith(_BOMS) or b"\0" in body:
        raise CallerError(
            ErrorCode.INVALID_ENCODING, "The body must be JSON in UTF-8 without a byte order mark."
        )
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise CallerError(ErrorCode.INVALID_ENCODING, "The body is not valid UTF-8.") from error
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_int, parse_float=_float
        )
    except (ValueError, RecursionError) as error:
        raise CallerError(ErrorCode.MALFORMED_JSON, "The body is not valid JSON.") from error
    # Only an escape can contain characters that the decoder above refuses.
    if "\\u" in text:
        _check_text(value)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _no_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("number too long")
    return int(text)


def _float(text: str) -> float:
    value = float(text) if len(text) <= _MAX_DIGITS else float("inf")
    if value in (float("inf"), float("-inf")):
        raise ValueError("number too large")
    return value


def _check_text(value: Any) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in item):
            raise CallerError(
                ErrorCode.VALIDATION_ERROR, "Text must not contain NUL or unpaired surrogates.", field="body"
            )

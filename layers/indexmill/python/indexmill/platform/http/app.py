"""HTTP side of every service: its app behind the request guard, Lambda handler, error envelope."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from mangum import Mangum
from starlette.exceptions import HTTPException

from indexmill.contracts.errors import CallerError, DomainBusy, ErrorCode, IndexmillError
from indexmill.contracts.identity import CallerContext, MissingScope, tier_of
from indexmill.platform.aws.state_table import StoreClock
from indexmill.platform.http.guard import Guard, caller_of, field_name, limit_headers
from indexmill.platform.limits.enforcer import ActiveCallers, Backpressure, SlidingWindowEnforcer
from indexmill.platform.limits.policy import LimitSettings, PressureSettings
from indexmill.platform.limits.store import LimitStore, Load, QueueAges
from indexmill.platform.meter import METER
from indexmill.platform.observability import Observability
from indexmill.platform.settings import HttpSettings, csv
from indexmill.platform.time import SystemClock, limited

_SERVER_ERROR = 500
_TOO_MANY = 429
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
_CODES_OF_FIELDS: Final = frozenset((ErrorCode.URL_INVALID, ErrorCode.CONTENT_TOO_LARGE))
"""What a field's own check may say instead of validation_error."""
_EXPOSED: Final = ",".join(
    (
        *("x-request-id", "retry-after", "etag", "x-text-length"),
        *("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-reason"),
    )
)
"""Headers that a page of an allowed origin can read, beside those that any page can."""
_TRY_AGAIN: Final = "Send it again; with the same Idempotency-Key a submit happens once."
_WAIT_S: Final = 5
"""Retry-After of a 503 or 504 that has no better one."""
_PORT: Final = re.compile(r":[0-9]{1,5}$")
"""An allowed origin may end in `:*`, which is any port."""
_SOUND_ID = re.compile(r"[A-Za-z0-9-]{1,64}")

_MOMENT: Final = "Send a moment in ISO 8601, as 2026-03-01T12:00:00Z."
_SENTENCES: Final[Mapping[str, str]] = {
    "missing": "This is required.",
    "extra_forbidden": "There is no such field.",
    "string_type": "Send a string.",
    "string_too_short": "Send at least {min_length} characters.",
    "string_too_long": "Send at most {max_length} characters.",
    "string_pattern_mismatch": "This must match {pattern}",
    "too_short": "Send at least {min_length} items.",
    "too_long": "Send at most {max_length} items.",
    "greater_than": "Send a number above {gt}.",
    "greater_than_equal": "Send a number of at least {ge}.",
    "less_than_equal": "Send a number of at most {le}.",
    **dict.fromkeys(("literal_error", "enum"), "Send {expected}."),
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing", "int_parsing_size"), "Send an integer."),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "Send a number."),
    **dict.fromkeys(("bool_type", "bool_parsing"), "Send true or false."),
    "list_type": "Send a list.",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "Send a JSON object."),
    **dict.fromkeys(("datetime_parsing", "datetime_from_date_parsing", "datetime_type"), _MOMENT),
    "datetime_object_invalid": _MOMENT,
    "value_error": "{error}",
}
"""Sentences for callers, by the type of pydantic's error, whose own texts speak of Python."""

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


def build_active(service: str, settings: LimitSettings) -> ActiveCallers:
    """Build what a process knows of all callers of `service`, on the state table."""
    clock = StoreClock(SystemClock())
    return ActiveCallers(service, LimitStore(settings.state_table, clock), clock)


def queue_pressure(
    stage: str, url: str, settings: PressureSettings, observability: Observability
) -> Backpressure:
    """Build the backpressure of a service's `enqueue` endpoint, which adds work to the queue of `stage`."""
    from indexmill.platform.aws.clients import QUICK, LazyClient
    from indexmill.platform.aws.sqs_queue import SqsBacklog

    clock = SystemClock()
    backlog, ages = SqsBacklog([url], LazyClient("sqs", limits=QUICK)), QueueAges(settings.state_table, clock)

    def load() -> Load:
        depth = backlog.messages()
        # A worker's note may outlive the messages that it is about.
        return Load(depth, ages.oldest(stage) if depth else 0.0)

    routes = [("POST", f"/{observability.service}/enqueue")]
    return Backpressure(load, settings, clock, observability, routes=routes)


def serve(
    routers: list[APIRouter],
    settings: LimitSettings,
    observability: Observability,
    *,
    exempt: Collection[str] = (),
    pressure: Backpressure | None = None,
    active: ActiveCallers | None = None,
) -> Handler:
    """Build the handler of a service's function, its routers behind a guard on the state table.

    `active` is that of the process, where something else needs it, too.
    """
    active = active or build_active(observability.service, settings)
    strategy = settings.strategy(observability.service, settings.fair_share, active.count)
    enforcer = SlidingWindowEnforcer(observability.service, strategy, active)
    guard = Guard(enforcer, observability, exempt=exempt, pressure=pressure)
    return lambda_handler(create_app(routers, observability, guard), observability, settings)


def create_app(routers: list[APIRouter], observability: Observability, guard: Guard | None = None) -> FastAPI:
    """Build a service's app: its routers behind `guard`, and our envelope for whatever goes wrong."""
    app = FastAPI(redirect_slashes=False, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.guard = guard
    for router in routers:
        app.include_router(router)

    async def on_error(request: Request, error: Exception) -> Response:
        known = _as_known(error)
        if known.http_status >= _SERVER_ERROR and not isinstance(known, DomainBusy):
            what = {"code": known.code, "request_id": _own_id(request)}
            observability.log.error("request.failed", exc_info=error, extra=what)
        if known.code in (ErrorCode.FORBIDDEN, ErrorCode.INSUFFICIENT_SCOPE):
            _note_rejection(observability, known, request)
        if known.http_status == _TOO_MANY:
            _note_refusal(observability, known, request)
        answer = envelope(known, _own_id(request))
        answer.headers.update(limit_headers(request))
        return answer

    for kind in (IndexmillError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, on_error)
    return app


def _note_rejection(observability: Observability, error: IndexmillError, request: Request) -> None:
    """Audit what a key may not: which object was named, by its ids."""
    route, field = getattr(request.scope.get("route"), "path", None), error.field
    ids = {name: value for name, value in request.path_params.items() if name.endswith("_id")}
    where = {"route": route, "field": field, "request_id": _own_id(request), **ids}
    if isinstance(error, MissingScope):
        observability.count("insufficient_scope_total", scope=error.scope)
        observability.emit("scope_rejected", caller_of(request), scope=error.scope, **where)
    else:
        observability.emit("internal_rejected", caller_of(request), **where)


def _note_refusal(observability: Observability, error: IndexmillError, request: Request) -> None:
    """Log which 429 it is, beside the gateway's access log, which has no part of a function's answer.

    The others are counted where they arise; a quota has several places.
    """
    claims = _request_context(request).get("authorizer") or {}
    if error.code == ErrorCode.QUOTA_EXCEEDED:
        observability.count("quota_exceeded_total", tier=tier_of(claims.get("tier")))
    what = {
        "code": error.code,
        "request_id": _own_id(request),
        "caller_id": claims.get("caller_id"),
        "method": request.method,
        "resource": getattr(request.scope.get("route"), "path", None),
    }
    observability.log.warning("request.refused", extra=what)


def lambda_handler(
    app: FastAPI, observability: Observability, settings: HttpSettings | None = None
) -> Handler:
    """Wrap `app`; every answer carries X-Request-Id, and none is larger than Lambda can return.

    Pages of the allowed origins may read the answers, errors too; the gateway answers their preflights. Work
    that waits for the database is a 504 a second before the gateway's own.
    """
    settings = settings or HttpSettings()
    allowed_origins, own_s = csv(settings.allowed_origins), settings.integration_timeout_seconds - 1
    # Mangum would run the app's lifespan on every event: clients live at module scope instead.
    mangum = Mangum(app, lifespan="off")

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        METER.begin_request()
        with limited(own_s, message="The request took too long.", hint=_TRY_AGAIN):
            reply: dict[str, Any] = mangum(event, context)
        own_id = request_id(event)
        own = {**SECURITY_HEADERS, "x-request-id": own_id}
        if allowed_origins:
            own |= _cors_headers(_header(event, "origin"), allowed_origins)
        reply["headers"] = {**reply.get("headers", {}), **own}
        if _is_too_large(reply):
            reply = _too_large(own)
        observability.flush()
        METER.end()
        return reply

    return handler


def _cors_headers(origin: str, allowed: Collection[str]) -> dict[str, str]:
    """Return what lets a page read the answer. It differs by origin, so caches keep one for each."""
    if origin not in allowed and _PORT.sub(":*", origin) not in allowed:
        return {"vary": "Origin"}
    return {
        "vary": "Origin",
        "access-control-allow-origin": origin,
        "access-control-expose-headers": _EXPOSED,
    }


def _is_too_large(reply: dict[str, Any]) -> bool:
    # The exact size takes as long as the encoding itself: only what could be too large is measured.
    if len(reply.get("body") or "") <= _MAX_RESPONSE_BYTES // _MOST_PER_CHARACTER:
        return False
    return len(json.dumps(reply, ensure_ascii=False).encode()) > _MAX_RESPONSE_BYTES


def _too_large(own: dict[str, str]) -> dict[str, Any]:
    error = {
        "code": ErrorCode.RESPONSE_TOO_LARGE,
        "message": "The answer would be larger than 6 MB.",
        "request_id": own["x-request-id"],
        "hint": "Use the asynchronous endpoint, POST /orchestrator/jobs.",
    }
    return {
        "statusCode": 413,
        "headers": {**own, "content-type": "application/json"},
        "body": json.dumps({"error": error}),
        "isBase64Encoded": False,
    }


def envelope(error: IndexmillError, request_id_: str) -> JSONResponse:
    """Return the one shape of an error answer."""
    message = error.message if error.code != ErrorCode.INTERNAL_ERROR else "Something went wrong on our side."
    retry_after = error.retry_after
    if retry_after is None and error.http_status in (503, 504):
        retry_after = _WAIT_S
    content = {
        "code": error.code,
        "message": message,
        "request_id": request_id_,
        "field": error.field,
        "retry_after": retry_after,
        "hint": error.hint,
    }
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
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
    location, text = field_name(problem["loc"]), sentence(problem)[:200]
    code = problem["type"] if problem["type"] in _CODES_OF_FIELDS else ErrorCode.VALIDATION_ERROR
    return CallerError(code, f"{location}: {text}"[:400], field=location)


def sentence(problem: Mapping[str, Any]) -> str:
    """Return what is wrong with a field, by one of pydantic's errors; never the value."""
    kind, context, value = problem["type"], problem.get("ctx", {}), problem.get("input")
    if kind in ("string_too_short", "too_short") and context["min_length"] == 1:
        return "This must not be empty."
    # Of a string that another check has read already, pydantic counts items.
    if kind in ("too_long", "too_short") and isinstance(value, str):
        kind = f"string_{kind}"
    found = _SENTENCES.get(kind)
    return str(problem["msg"]) if found is None else found.format_map(context)


def _own_id(request: Request) -> str:
    return request_id(request.scope.get("aws.event", {}))


def _request_context(request: Request) -> dict[str, Any]:
    context: dict[str, Any] = request.scope.get("aws.event", {}).get("requestContext", {})
    return context


async def _caller(request: Request) -> CallerContext:
    return caller_of(request)


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
    given = _header(event, "x-request-id")
    if _SOUND_ID.fullmatch(given):
        return given
    return str(event.get("requestContext", {}).get("requestId", ""))


def _header(event: dict[str, Any], wanted: str) -> str:
    """Return the value of a header, "" without it."""
    headers = event.get("headers") or {}
    return next((str(value) for name, value in headers.items() if name.lower() == wanted), "")


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

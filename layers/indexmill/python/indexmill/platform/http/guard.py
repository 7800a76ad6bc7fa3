"""Request guard: the checks in front of every route, in one order, before FastAPI sees the body.

The first check that refuses a request answers it, and nothing behind that one runs:

1. caller, as the gateway's authorizer found it;
2. maintenance: what backpressure reads may be what is being maintained;
3. backpressure: a request that it refuses costs its caller nothing of the limit;
4. block, which is found with the limit, and 5. limit: what is refused later is counted;
6. scope: the one that the route declares by `scoped`;
7. parameters, 8. body, by rules of our own; 9. scopes that values in the body need.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, Final, NoReturn

from fastapi import Request, Response, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.identity import CallerContext, Scope, caller_of_claims, is_plain, tier_of
from indexmill.platform.limits.enforcer import (
    Backpressure,
    CallerBlocked,
    LimitUse,
    RateLimited,
    SlidingWindowEnforcer,
)
from indexmill.platform.limits.policy import READ, TOKEN, WORK, is_internal
from indexmill.platform.limits.window import SLOTS
from indexmill.platform.observability import Observability

_READS: Final = ("GET", "HEAD")
_ACCEPTING: Final = ("/enqueue", "/jobs", "/retry", "/replay", "/uploads")
"""Ends of the paths whose requests cause work that is done later, or prepare it."""
_MOST_AUDITED: Final = 1_000
_SOUND_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BOMS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_MAX_DIGITS: Final = 400
_TOKEN: Final = re.compile(r'("(?:[^"\\]|\\.)*+")(\s*:)?|[{}\[\]]|NaN|-?Infinity|-?[0-9][0-9.eE+-]*')
"""What tells where a JSON text that the parser could read breaks our own rules."""


def scoped(scope: Scope, *, token: bool = False) -> dict[str, Any]:
    """Return the `openapi_extra` of a route that needs `scope`; a stream's `token` can replace a key."""
    return {"security": [{"ApiKey": [scope]}, *([{"StreamToken": []}] if token else [])]}


def json_route(max_body_bytes: int) -> type[APIRoute]:
    """Return the route class of endpoints that take JSON of at most `max_body_bytes`.

    Each has `openapi_extra=scoped(…)`, or `{"security": []}` where no key is needed; one without is a defect.
    """

    class JsonRoute(APIRoute):
        """Has each request checked before it is handled."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            original = super().get_route_handler()
            takes_body = self.body_field is not None
            optional = self.body_field is not None and not self.body_field.field_info.is_required()
            declared = get_flat_params(self.dependant)
            query = frozenset(each.alias for each in declared if isinstance(each.field_info, params.Query))
            headers = frozenset(each.alias for each in declared if isinstance(each.field_info, params.Header))
            ways = (self.openapi_extra or {})["security"]
            scope: Scope | None = ways[0]["ApiKey"][0] if ways else None

            async def handle(request: Request) -> Response:
                guard: Guard | None = request.app.state.guard
                if guard is not None:
                    guard.check(request, self.path, scope)
                _check_parameters(request, query, headers)
                if takes_body and not (optional and not await request.body()):
                    body = await _checked_body(request, max_body_bytes)
                    value = read_json(body)
                    if guard is not None and isinstance(value, dict):
                        caller_of(request).require_values(value, "body.")
                    request = _StrictRequest(request, body, value)
                response = await original(request)
                response.headers.update(limit_headers(request))
                return response

            return handle

    return JsonRoute


def caller_of(request: Request) -> CallerContext:
    """Return the validated caller. Raises CallerError(invalid_api_key) where no authorizer let one pass."""
    event = request.scope.get("aws.event", {})
    return caller_of_claims(event.get("requestContext", {}).get("authorizer") or {})


def limit_headers(request: Request) -> dict[str, str]:
    """Return the headers that tell the caller's limit; none for what no limit was asked about."""
    found: dict[str, str] = getattr(request.state, "limit_headers", {})
    return found


class Guard:
    """Checks of all requests to one service; a test of something else has none."""

    def __init__(
        self,
        enforcer: SlidingWindowEnforcer,
        observability: Observability,
        *,
        exempt: Collection[str] = (),
        pressure: Backpressure | None = None,
    ) -> None:
        """`exempt` are the paths, as routes have them, of requests that are neither limited nor counted."""
        self._enforcer = enforcer
        self._observability = observability
        self._exempt = frozenset(exempt)
        self._pressure = pressure
        self._audited: dict[tuple[str, str], float] = {}
        self._failures_counted = 0

    def check(self, request: Request, path: str, scope: Scope | None) -> None:
        """Admit the request to a route, or raise; every answer to it tells the caller's limit.

        `scope` is what the route needs; None where it needs no key.
        """
        if scope is None:
            return
        ctx = caller_of(request)
        if path not in self._exempt:
            try:
                use = self.enter(ctx, request.method, path)
            except RateLimited as error:
                request.state.limit_headers = error.use.headers()
                raise
            if use is not None:
                request.state.limit_headers = use.headers()
        ctx.require(scope)

    def enter(self, ctx: CallerContext, method: str, path: str) -> LimitUse | None:
        """Admit a caller's request; None when nothing limits it.

        Raises InMaintenance, CallerError(queue_saturated), CallerBlocked or RateLimited, in this order.
        """
        bucket = TOKEN if "token" in ctx.raw_claims else READ if method in _READS else WORK
        try:
            if method == "POST" and path.endswith(_ACCEPTING):
                self._enforcer.check_open()
            if self._pressure is not None:
                self._pressure(ctx, method, path)
            return self._enforcer.check(ctx, bucket)
        except CallerBlocked:
            self._observability.count("caller_blocked_total")
            raise
        except RateLimited as error:
            self._note(ctx, bucket, error.use)
            raise
        finally:
            self._count_failures()

    def _note(self, ctx: CallerContext, bucket: str, use: LimitUse) -> None:
        """Count a refusal; the audit has one of a caller at most for each slot of its window."""
        tier = "internal" if is_internal(ctx) else tier_of(ctx.tier)
        self._observability.count("rate_limited_total", bucket=bucket, tier=tier)
        now, caller = self._enforcer.clock.monotonic(), (bucket, ctx.caller_id)
        if now < self._audited.get(caller, now):
            return
        self._audited.pop(caller, None)
        self._audited[caller] = now + use.window_seconds / SLOTS
        if len(self._audited) > _MOST_AUDITED:
            del self._audited[next(iter(self._audited))]
        self._observability.emit(
            "rate_limit_hit",
            ctx,
            bucket=bucket,
            limit=use.limit,
            window_seconds=use.window_seconds,
            reason=use.reason,
        )

    def _count_failures(self) -> None:
        if failures := self._enforcer.failures - self._failures_counted:
            self._failures_counted += failures
            self._observability.count("rate_limit_store_unavailable", failures)


class _StrictRequest(Request):
    """A request whose JSON was already parsed by our own rules."""

    def __init__(self, request: Request, body: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = body
        self._json = value


def field_name(parts: Iterable[object]) -> str:
    """Return the name of a field for an error; a part of it that a caller made up freely is left out."""
    sound = (str(part) for part in parts)
    return ".".join(part if _SOUND_NAME.fullmatch(part) else "?" for part in sound)[:200]


def _check_parameters(request: Request, query: frozenset[str], headers: frozenset[str]) -> None:
    """Refuse what no route takes; `query` and `headers` are the names that the route declares.

    Raises CallerError: validation_error for an unknown or repeated query parameter, and for a control
    character in the query, the path or one of the headers; invalid_api_key for several keys.
    """
    if _api_keys(request) > 1:
        raise CallerError(ErrorCode.INVALID_API_KEY, "Send exactly one X-API-Key header.")
    if request.scope.get("query_string"):
        _check_query(request, query)
    for name, value in request.path_params.items():
        _check_plain("path", name, str(value))
    # A line end after it does not keep a path from its route.
    _check_plain("path", "", request.scope["path"])
    for name in headers:
        _check_plain("header", name, request.headers.get(name, ""))


def _api_keys(request: Request) -> int:
    # The event knows: on the way here the values of one header were joined into one.
    headers = request.scope.get("aws.event", {}).get("multiValueHeaders") or {}
    return sum(len(values) for name, values in headers.items() if name.lower() == "x-api-key")


def _check_query(request: Request, known: frozenset[str]) -> None:
    pairs = request.query_params.multi_items()
    for name, count in Counter(name for name, _ in pairs).items():
        if name not in known:
            raise _wrong("query", name, "This endpoint has no such parameter.")
        if count > 1:
            raise _wrong("query", name, "Send this parameter once.")
    for name, value in pairs:
        _check_plain("query", name, value)


def _check_plain(place: str, name: str, value: str) -> None:
    if not is_plain(value):
        raise _wrong(place, name, "Control characters are not allowed here.")


def _wrong(place: str, name: str, message: str) -> CallerError:
    field = field_name((place, name) if name else (place,))
    return CallerError(ErrorCode.VALIDATION_ERROR, f"{field}: {message}", field=field)


async def _checked_body(request: Request, limit: int) -> bytes:
    """Return the body; raises CallerError for a wrong type or encoding, and for more than `limit` bytes."""
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
        message = f"The body is not valid JSON: {_broken(text, error)}."
        raise CallerError(ErrorCode.MALFORMED_JSON, message) from error
    # Only an escape can contain characters that the decoder above refuses.
    if "\\u" in text:
        _check_text(value)
    return value


def _broken(text: str, error: ValueError | RecursionError) -> str:
    """Return reason and place of what the parser refused; nothing of the text but a sound key."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        reason, at = error.msg.removesuffix(" at").removesuffix(": ").lower(), error.pos
    else:
        reason, at = _against_our_rules(text)
    line = text.count("\n", 0, at) + 1
    return f"{reason} (line {line}, column {at - text.rfind(chr(10), 0, at)})"


def _against_our_rules(text: str) -> tuple[str, int]:
    """Return what `_unique`, `_no_constant`, `_int` or `_float` refused first, and where."""
    keys: list[set[str]] = []
    for found in _TOKEN.finditer(text):
        token, at = found[0], found.start()
        if token in "{[":
            keys.append(set())
        elif token in "}]":
            keys.pop()
        elif found[2]:
            key = json.loads(found[1])
            if key in keys[-1]:
                return f"the key {field_name((key,))} is there twice", at
            keys[-1].add(key)
        elif token.endswith(("NaN", "Infinity")):
            return f"{token} is no number of JSON", at
        elif not found[1] and (len(token) > _MAX_DIGITS or math.isinf(float(token))):
            return f"the number is too large or has over {_MAX_DIGITS} characters", at
    return "a value breaks a rule", 0


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

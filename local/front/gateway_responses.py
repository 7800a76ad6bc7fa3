"""Gateway responses: AWS's defaults, and the template's replacements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from local.front.exchange import VARIABLE, Exchange
from local.front.replies import Reply
from local.template.spec import GatewayResponseSpec

_DEFAULT_TEMPLATES: Mapping[str, str] = {"application/json": '{"message":$context.error.messageString}'}
_INTERNAL = "InternalServerErrorException"


@dataclass(frozen=True, slots=True)
class _Kind:
    status: int
    message: str | None
    code: str


_KINDS: Mapping[str, _Kind] = {
    "UNAUTHORIZED": _Kind(401, "Unauthorized", "UnauthorizedException"),
    "ACCESS_DENIED": _Kind(403, "User is not authorized to access this resource", "AccessDeniedException"),
    "AUTHORIZER_FAILURE": _Kind(500, None, "AuthorizerFailureException"),
    "AUTHORIZER_CONFIGURATION_ERROR": _Kind(500, None, "AuthorizerConfigurationException"),
    "API_CONFIGURATION_ERROR": _Kind(500, "Internal server error", _INTERNAL),
    "MISSING_AUTHENTICATION_TOKEN": _Kind(
        403, "Missing Authentication Token", "MissingAuthenticationTokenException"
    ),
    "INTEGRATION_FAILURE": _Kind(504, "Network error communicating with endpoint", _INTERNAL),
    "INTEGRATION_TIMEOUT": _Kind(504, "Endpoint request timed out", _INTERNAL),
    "REQUEST_TOO_LARGE": _Kind(413, "Request Too Long", "RequestTooLargeException"),
    "THROTTLED": _Kind(429, "Too Many Requests", "TooManyRequestsException"),
    "WAF_FILTERED": _Kind(403, "Forbidden", "ForbiddenException"),
    "BAD_REQUEST_BODY": _Kind(400, "Invalid request body", "BadRequestException"),
    "DEFAULT_4XX": _Kind(400, "Bad Request", "BadRequestException"),
    "DEFAULT_5XX": _Kind(500, "Internal server error", _INTERNAL),
}


class GatewayError(Exception):
    """Raised when the gateway answers instead of the function.

    `response_type` is one of AWS's gateway response types; `status` and `message` override its defaults.
    `reason` is for the access log and the operator, never for the client.
    """

    def __init__(
        self, response_type: str, *, status: int | None = None, message: str | None = None, reason: str = ""
    ) -> None:
        super().__init__(response_type, reason)
        kind = _KINDS[response_type]
        self.response_type = response_type
        self.status = status or kind.status
        self.message = message or kind.message
        self.code = kind.code
        self.reason = reason
        self.close = False
        """Whether the connection must be closed: its body was not read completely."""


class GatewayResponses:
    """Gateway responses of the template with AWS's fallbacks: own type, then DEFAULT_4XX or DEFAULT_5XX.

    `edge` has the bodies, by status, of what AWS refuses before a request is one of the API.
    """

    def __init__(
        self, specs: Mapping[str, GatewayResponseSpec], edge: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        self._specs = {name.upper(): spec for name, spec in specs.items()}
        self._edge = edge

    def render(self, error: GatewayError, exchange: Exchange, accept: str | None = None) -> Reply:
        """Return the response for `error`; record the error in `exchange` for variables and access log."""
        exchange.error_type = error.response_type
        exchange.error_message = error.message
        family = "DEFAULT_5XX" if error.status >= 500 else "DEFAULT_4XX"
        spec = self._specs.get(error.response_type) or self._specs.get(family)
        exchange.status = (spec.status if spec else None) or error.status
        templates = (spec.templates if spec else None) or _DEFAULT_TEMPLATES
        if error.response_type == "DEFAULT_4XX" and error.status in self._edge:
            templates = {"application/json": self._edge[error.status]}
        content_type = _choose(templates, accept)
        body = _filled(templates[content_type], exchange).encode("utf-8", "replace")
        headers = [("Content-Type", content_type), ("x-amzn-ErrorType", error.code)]
        own = {name.lower() for name in spec.headers} if spec else set()
        kept = [pair for pair in headers if pair[0].lower() not in own]
        added = [(name, _filled(value, exchange)) for name, value in spec.headers.items()] if spec else []
        return Reply(exchange.status, kept + added, body)


def _filled(text: str, exchange: Exchange) -> str:
    return VARIABLE.sub(lambda found: exchange.variable(found.group(1)) or "", text)


def _choose(templates: Mapping[str, str], accept: str | None) -> str:
    """Return the template whose type the client names, else JSON, else the first."""
    for wanted in (accept or "").split(","):
        if (media_type := wanted.partition(";")[0].strip()) in templates:
            return media_type
    return "application/json" if "application/json" in templates else next(iter(templates))

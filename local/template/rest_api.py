"""REST API of a translated template: routes, authorizers, gateway responses, throttles, access log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from local.template.intrinsics import TemplateError
from local.template.spec import (
    AuthorizerSpec,
    GatewayResponseSpec,
    MockSpec,
    RestApiSpec,
    RouteSpec,
    Throttle,
)

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
_INVOCATION: Final = re.compile(r"functions/arn:[^/]*:function:([^/:]+)(?::[^/]+)?/invocations")
_AUTHORIZER: Final = "x-amazon-apigateway-authorizer"
_INTEGRATION: Final = "x-amazon-apigateway-integration"
_DEFAULT_TTL_S: Final = 300
_TIMEOUT_MS: Final = 29_000


def read_api(
    logical_id: str,
    body: Mapping[str, Any],
    stages: Sequence[Mapping[str, Any]],
    metadata: Mapping[str, Any],
) -> RestApiSpec:
    """Return the API of its resolved definition, stages and metadata.

    Raises TemplateError for unsupported parts.
    """
    if not stages:
        raise TemplateError(f"{logical_id} has no stage")
    schemes = (body.get("components") or {}).get("securitySchemes") or body.get("securityDefinitions") or {}
    stage = stages[0]
    return RestApiSpec(
        logical_id=logical_id,
        stage=str(stage["StageName"]),
        routes=tuple(_routes(body)),
        authorizers={
            name: _authorizer(name, scheme[_AUTHORIZER])
            for name, scheme in schemes.items()
            if _AUTHORIZER in scheme
        },
        gateway_responses={
            name: _gateway_response(name, response)
            for name, response in body.get("x-amazon-apigateway-gateway-responses", {}).items()
        },
        access_log_format=(stage.get("AccessLogSetting") or {}).get("Format"),
        edge_responses={int(status): body for status, body in metadata.get("EdgeResponses", {}).items()},
    )


def read_throttles(stages: Sequence[Mapping[str, Any]]) -> dict[str, Throttle]:
    """Return the method settings of the first stage that limit anything."""
    throttles = {}
    for setting in stages[0].get("MethodSettings", ()) if stages else ():
        if "ThrottlingRateLimit" not in setting:
            continue
        limit = Throttle(
            float(setting["ThrottlingRateLimit"]), int(setting.get("ThrottlingBurstLimit", 5000))
        )
        path, method = setting["ResourcePath"].replace("~1", "/"), setting["HttpMethod"]
        throttles["*" if (path, method) == ("/*", "*") else f"{method} {path.replace('//', '/')}"] = limit
    return throttles


def _routes(body: Mapping[str, Any]) -> Iterator[RouteSpec]:
    default = body.get("security")
    for path, operations in body["paths"].items():
        for method, operation in operations.items():
            if method not in _METHODS:
                raise TemplateError(f"{method} {path} is no single method; name the methods one by one")
            integration = operation.get(_INTEGRATION) or {}
            if integration.get("type") == "mock":
                mock = _mock(f"{method} {path}", operation, integration)
                yield RouteSpec(method.upper(), path, "", mock=mock)
                continue
            if integration.get("type") != "aws_proxy":
                raise TemplateError(f"{method} {path} is no proxy integration with a function")
            security = operation.get("security", default)
            yield RouteSpec(
                method=method.upper(),
                path=path,
                function=_function(integration["uri"]),
                authorizer=next((name for each in security or () for name in each if name != "NONE"), None),
                timeout_ms=int(integration.get("timeoutInMillis", _TIMEOUT_MS)),
            )


def _mock(name: str, operation: Mapping[str, Any], integration: Mapping[str, Any]) -> MockSpec:
    """Return the one answer of a mock integration. Raises TemplateError for several, or an authorizer."""
    responses = integration.get("responses") or {}
    if set(responses) != {"default"} or operation.get("security"):
        raise TemplateError(f"{name}: a mock integration has one response and no authorizer here")
    status = int(responses["default"]["statusCode"])
    if json.loads(integration["requestTemplates"]["application/json"]) != {"statusCode": status}:
        raise TemplateError(f"{name}: the request template of the mock integration chooses another status")
    declared = operation["responses"][str(status)].get("headers", {})
    headers = {
        key.removeprefix("method.response.header."): value.strip("'")
        for key, value in (responses["default"].get("responseParameters") or {}).items()
    }
    if undeclared := sorted(headers.keys() - declared.keys()):
        raise TemplateError(f"{name}: the method does not declare {', '.join(undeclared)}")
    template = (responses["default"].get("responseTemplates") or {}).get("application/json", "")
    return MockSpec(status, headers, template)


def _function(uri: str) -> str:
    found = _INVOCATION.search(uri)
    if found is None:
        raise TemplateError(f"{uri} is not the address of a function")
    return found.group(1)


def _authorizer(name: str, definition: Mapping[str, Any]) -> AuthorizerSpec:
    if definition.get("type") != "request":
        raise TemplateError(f"authorizer {name} is of type {definition.get('type')}, not request")
    sources = [part.strip() for part in definition.get("identitySource", "").split(",") if part.strip()]
    prefix = "method.request.header."
    if other := [source for source in sources if not source.startswith(prefix)]:
        raise TemplateError(f"authorizer {name} identifies callers by {', '.join(other)}, not by headers")
    return AuthorizerSpec(
        name=name,
        function=_function(definition["authorizerUri"]),
        identity_headers=tuple(source.removeprefix(prefix) for source in sources),
        ttl_s=int(definition.get("authorizerResultTtlInSeconds", _DEFAULT_TTL_S)),
    )


def _gateway_response(name: str, response: Mapping[str, Any]) -> GatewayResponseSpec:
    prefix = "gatewayresponse.header."
    status = response.get("statusCode")
    return GatewayResponseSpec(
        response_type=name,
        status=None if status is None else int(status),
        headers={
            key.removeprefix(prefix): value.strip("'") if value.startswith("'") else f"${value}"
            for key, value in response.get("responseParameters", {}).items()
            if key.startswith(prefix)
        },
        templates=dict(response.get("responseTemplates", {})),
    )

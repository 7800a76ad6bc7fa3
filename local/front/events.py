"""Events that API Gateway sends: Lambda proxy (payload v1) and REQUEST authorizer."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from local.front.exchange import Exchange
from local.front.routing import Match

_NOT_FORWARDED = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)
_IDENTITY_NULLS = dict.fromkeys(
    [
        *("accessKey", "accountId", "caller", "principalOrgId", "user", "userArn"),
        *("cognitoAuthenticationProvider", "cognitoAuthenticationType"),
        *("cognitoIdentityId", "cognitoIdentityPoolId"),
    ]
)


@dataclass(slots=True)
class Headers:
    """Header block of a request: every value under the first spelling of its name.

    API Gateway compares names without case, so `X-A` and `x-a` are one header with two values.
    """

    multi: dict[str, list[str]] = field(default_factory=dict)
    spelling: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_raw(cls, raw: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Read name and value pairs as received."""
        headers = cls()
        for name, value in raw:
            headers.add(_text(name), _text(value))
        return headers

    def add(self, name: str, value: str) -> None:
        """Append one value."""
        self.multi.setdefault(self.spelling.setdefault(name.lower(), name), []).append(value)

    def replace(self, name: str, value: str) -> None:
        """Set `value` as the only one under `name`."""
        self.multi[self.spelling.setdefault(name.lower(), name)] = [value]

    def get_all(self, name: str) -> Sequence[str]:
        """Return every value of `name`, in order."""
        return self.multi.get(self.spelling.get(name.lower(), ""), ())

    def get(self, name: str) -> str | None:
        """Return the last value of `name`."""
        values = self.get_all(name)
        return values[-1] if values else None

    def forwarded(self) -> dict[str, list[str]]:
        """Return the headers that a function receives: all but the hop-by-hop headers and the framing."""
        return {name: values for name, values in self.multi.items() if name.lower() not in _NOT_FORWARDED}


ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))
"""Events are sent as UTF-8, not as escapes: six bytes for a two-byte letter would not fit Lambda's limit."""


def split_target(target: str) -> tuple[str, str]:
    """Return path and query of a request target, both still percent-encoded."""
    path, _, query = target.partition("#")[0].partition("?")
    return path, query


def query_values(query: str) -> dict[str, list[str]]:
    """Return decoded query parameters. A semicolon separates like an ampersand, as on AWS."""
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(query.replace(";", "&"), keep_blank_values=True):
        values.setdefault(name, []).append(value)
    return values


def request_context(exchange: Exchange, *, deployment_id: str) -> dict[str, Any]:
    """Return the `requestContext` of either event; `authorizer` is present once the request is allowed."""
    context: dict[str, Any] = {
        "accountId": exchange.api.account_id,
        "apiId": exchange.api.api_id,
        "deploymentId": deployment_id,
        "domainName": exchange.host,
        "domainPrefix": exchange.host.split(".", 1)[0],
        "extendedRequestId": exchange.extended_request_id,
        "httpMethod": exchange.method,
        "identity": {**_IDENTITY_NULLS, "sourceIp": exchange.source_ip, "userAgent": exchange.user_agent},
        "path": exchange.stage_path,
        "protocol": exchange.protocol,
        "requestId": exchange.request_id,
        "requestTime": exchange.request_time,
        "requestTimeEpoch": exchange.epoch_ms,
        "resourceId": exchange.resource_id,
        "resourcePath": exchange.resource_path,
        "stage": exchange.api.stage,
    }
    if exchange.authorizer is not None:
        context["authorizer"] = {
            **exchange.authorizer,
            "integrationLatency": exchange.authorizer_latency or 0,
        }
    return context


@dataclass(slots=True)
class EventBuilder:
    """Builds the events of one API."""

    deployment_id: str
    binary_media_types: frozenset[str] = frozenset()
    decode_path_parameters: bool = False

    def proxy_event(self, exchange: Exchange, match: Match, headers: Headers, body: bytes) -> dict[str, Any]:
        """Return the Lambda proxy event, version 1.0. Absent values are null."""
        multi = headers.forwarded()
        query = query_values(exchange.query)
        text, is_base64 = self._body(body, headers)
        return {
            "resource": match.route.path,
            "path": exchange.path,
            "httpMethod": exchange.method,
            "headers": _last(multi) or None,
            "multiValueHeaders": multi or None,
            "queryStringParameters": _last(query) or None,
            "multiValueQueryStringParameters": query or None,
            "pathParameters": self._parameters(match) or None,
            "stageVariables": None,
            "requestContext": request_context(exchange, deployment_id=self.deployment_id),
            "body": text,
            "isBase64Encoded": is_base64,
        }

    def authorizer_event(self, exchange: Exchange, match: Match, headers: Headers) -> dict[str, Any]:
        """Return the REQUEST authorizer event. Absent values are empty objects; there is no body."""
        multi = headers.forwarded()
        query = query_values(exchange.query)
        return {
            "type": "REQUEST",
            "methodArn": exchange.api.method_arn(exchange.method, exchange.path),
            "resource": match.route.path,
            "path": exchange.path,
            "httpMethod": exchange.method,
            "headers": _last(multi),
            "multiValueHeaders": multi,
            "queryStringParameters": _last(query),
            "multiValueQueryStringParameters": query,
            "pathParameters": self._parameters(match),
            "stageVariables": {},
            "requestContext": request_context(exchange, deployment_id=self.deployment_id),
        }

    def _parameters(self, match: Match) -> dict[str, str]:
        if not self.decode_path_parameters:
            return dict(match.parameters)
        return {name: unquote(value) for name, value in match.parameters.items()}

    def _body(self, body: bytes, headers: Headers) -> tuple[str | None, bool]:
        if not body:
            return None, False
        media_type = (headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        if not self.binary_media_types & {media_type, "*/*"}:
            try:
                return body.decode("utf-8"), False
            except UnicodeDecodeError:
                pass
        return base64.b64encode(body).decode("ascii"), True


def _last(multi: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: values[-1] for name, values in multi.items()}


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")

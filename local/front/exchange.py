"""Request and response as the gateway sees them: the source of every `$context` variable."""

from __future__ import annotations

import base64
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

VARIABLE = re.compile(r"\$context\.([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class ApiIdentity:
    """Identity of the API: values that are the same in every request."""

    account_id: str
    api_id: str
    region: str
    stage: str

    def method_arn(self, method: str, path: str) -> str:
        """Return the `execute-api` ARN of one method on one concrete path."""
        prefix = f"arn:aws:execute-api:{self.region}:{self.account_id}:{self.api_id}"
        return f"{prefix}/{self.stage}/{method}/{path.removeprefix('/')}"


@dataclass(slots=True)
class Exchange:
    """State of one request; fields are filled in while it is handled. Latencies are in ms."""

    api: ApiIdentity
    request_id: str
    extended_request_id: str
    trace_id: str
    started: float
    epoch_ms: int
    method: str
    path: str
    """The path without the stage, still percent-encoded."""
    query: str
    protocol: str
    host: str
    source_ip: str
    user_agent: str | None
    resource_path: str | None = None
    resource_id: str | None = None
    authorizer: Mapping[str, str] | None = None
    """`principalId` and the authorizer's context, once the request has been allowed."""
    authorizer_status: int | None = None
    authorizer_latency: int | None = None
    authorizer_error: str | None = None
    integration_status: int | None = None
    integration_latency: int | None = None
    integration_request_id: str | None = None
    integration_error: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    waf_response: str | None = None
    """WAF_ALLOW or WAF_BLOCK where a web ACL is before the API."""
    web_acl: str | None = None
    status: int | None = None
    response_length: int | None = None
    response_latency: int | None = None

    @property
    def stage_path(self) -> str:
        """The path with the stage in front, as `requestContext.path` and the access log show it."""
        return f"/{self.api.stage}{self.path}"

    @property
    def request_time(self) -> str:
        """The arrival time in common log format."""
        return clf_time(self.epoch_ms)

    def variable(self, name: str) -> str | None:
        """Return the value of `$context.<name>`, or None when it has none in this request."""
        reader = _VARIABLES.get(name)
        if reader is not None:
            value = reader(self)
            return None if value is None else str(value)
        if name.startswith("authorizer.") and self.authorizer is not None:
            return self.authorizer.get(name.removeprefix("authorizer."))
        return None


def new_ids() -> tuple[str, str]:
    """Return a request id (UUID) and an extended request id in AWS's formats."""
    return str(uuid.uuid4()), base64.b64encode(os.urandom(11)).decode()


def new_trace_id(epoch_ms: int) -> str:
    """Return an X-Ray trace header value that starts a new trace."""
    return f"Root=1-{epoch_ms // 1000:08x}-{os.urandom(12).hex()}"


def clf_time(epoch_ms: int) -> str:
    """Return a UTC time in common log format; month names do not depend on the locale."""
    t = time.gmtime(epoch_ms // 1000)
    clock = f"{t.tm_hour:02d}:{t.tm_min:02d}:{t.tm_sec:02d}"
    return f"{t.tm_mday:02d}/{_MONTHS[t.tm_mon - 1]}/{t.tm_year}:{clock} +0000"


def _quoted_error(exchange: Exchange) -> str:
    return json.dumps(exchange.error_message)


_VARIABLES: Mapping[str, Callable[[Exchange], object]] = {
    "accountId": lambda x: x.api.account_id,
    "apiId": lambda x: x.api.api_id,
    "stage": lambda x: x.api.stage,
    "requestId": lambda x: x.request_id,
    "extendedRequestId": lambda x: x.extended_request_id,
    "xrayTraceId": lambda x: x.trace_id.removeprefix("Root="),
    "httpMethod": lambda x: x.method,
    "path": lambda x: x.stage_path,
    "protocol": lambda x: x.protocol,
    "resourcePath": lambda x: x.resource_path,
    "resourceId": lambda x: x.resource_id,
    "domainName": lambda x: x.host,
    "domainPrefix": lambda x: x.host.split(".", 1)[0],
    "requestTime": lambda x: x.request_time,
    "requestTimeEpoch": lambda x: x.epoch_ms,
    "identity.sourceIp": lambda x: x.source_ip,
    "identity.userAgent": lambda x: x.user_agent,
    "status": lambda x: x.status,
    "responseLength": lambda x: x.response_length,
    "responseLatency": lambda x: x.response_latency,
    "integrationStatus": lambda x: x.integration_status,
    "integrationLatency": lambda x: x.integration_latency,
    "integrationErrorMessage": lambda x: x.integration_error,
    "integration.integrationStatus": lambda x: x.integration_status,
    "integration.status": lambda x: 200 if x.integration_request_id else None,
    "integration.latency": lambda x: x.integration_latency,
    "integration.requestId": lambda x: x.integration_request_id,
    "integration.error": lambda x: x.integration_error,
    "awsEndpointRequestId": lambda x: x.integration_request_id,
    "authorizer.status": lambda x: x.authorizer_status,
    "authorizer.latency": lambda x: x.authorizer_latency,
    "authorizer.integrationLatency": lambda x: x.authorizer_latency,
    "authorizer.integrationStatus": lambda x: x.authorizer_status,
    "authorizer.error": lambda x: x.authorizer_error,
    "authorize.status": lambda x: x.authorizer_status,
    "authorize.latency": lambda x: x.authorizer_latency,
    "authorize.error": lambda x: x.authorizer_error,
    "error.message": lambda x: x.error_message,
    "error.messageString": _quoted_error,
    "error.responseType": lambda x: x.error_type,
    "wafResponseCode": lambda x: x.waf_response,
    "webaclArn": lambda x: x.web_acl,
}

"""Plain values of the template: functions, routes, queues, schedules; shared by all parts of the local cloud.

`local.template.template` makes them from template.yaml; the Lambda host, the REST front and the triggers read
them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from local.template.cron import Cron


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One Lambda function."""

    logical_id: str
    name: str
    """The deployed function name; equal to the logical id when the template names none."""
    handler: str
    """`module.attribute`, relative to `code_dir`."""
    code_dir: Path
    layer_dirs: tuple[Path, ...]
    """Each layer's content folder, in order: its `python/` is added to the path."""
    timeout_s: int
    memory_mb: int
    environment: Mapping[str, str]
    runtime: str = "python3.13"
    reserved_concurrency: int | None = None
    log_level: str | None = None
    """Its ApplicationLogLevel, as TRACE to FATAL; None where logs are no JSON."""


@dataclass(frozen=True, slots=True)
class MockSpec:
    """Answer of a mock integration: the gateway's own, without a function."""

    status: int
    headers: Mapping[str, str]
    template: str = ""
    """Mapping template of the answer."""


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """One method and path of the REST API."""

    method: str
    path: str
    """As in the template, with `{name}` path parameters."""
    function: str
    """Logical id of the function that is invoked."""
    authorizer: str | None = None
    timeout_ms: int = 29_000
    mock: MockSpec | None = None
    """Answer without a function, in place of one."""


@dataclass(frozen=True, slots=True)
class AuthorizerSpec:
    """A REQUEST authorizer of the REST API."""

    name: str
    function: str
    identity_headers: tuple[str, ...]
    ttl_s: int


@dataclass(frozen=True, slots=True)
class GatewayResponseSpec:
    """Response of the gateway itself for one response type (for example UNAUTHORIZED)."""

    response_type: str
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Header name to value; `$context` variables in it are filled in."""
    templates: Mapping[str, str] = field(default_factory=dict)
    """Content type to body template; `$context` variables in it are filled in."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Limit of one API method: `rate` requests a second on average, `burst` at once."""

    rate: float
    burst: int


@dataclass(frozen=True, slots=True)
class CustomResponse:
    """Answer of a rule of the web ACL, in place of the API's."""

    status: int
    headers: Mapping[str, str]
    content_type: str
    body: str


@dataclass(frozen=True, slots=True)
class RateRule:
    """Blocks what is beyond `limit` requests in `window_s` seconds of one address, or of one `header`."""

    name: str
    limit: int
    window_s: int
    header: str | None = None
    """Requests without it are not counted. None counts by address."""
    response: CustomResponse | None = None
    """None is the gateway response WAF_FILTERED."""


@dataclass(frozen=True, slots=True)
class BodySizeRule:
    """Blocks bodies of more than `most_bytes` on the paths, with the stage, that `path` is found in."""

    name: str
    path: re.Pattern[str]
    most_bytes: int
    response: CustomResponse | None = None


@dataclass(frozen=True, slots=True)
class WebAclSpec:
    """The web ACL before the API: the rules that can block, in the order of their priority."""

    arn: str
    rules: tuple[RateRule | BodySizeRule, ...]


@dataclass(frozen=True, slots=True)
class RestApiSpec:
    """The whole REST API."""

    logical_id: str
    stage: str
    routes: tuple[RouteSpec, ...]
    authorizers: Mapping[str, AuthorizerSpec]
    gateway_responses: Mapping[str, GatewayResponseSpec]
    access_log_format: str | None = None
    edge_responses: Mapping[int, str] = field(default_factory=dict)
    """JSON body, by status, of what is refused before a request is one of the API."""


def function_name(reference: str) -> str:
    """Return the name in a name, a partial or a whole ARN, each with or without a qualifier."""
    parts = reference.split(":")
    if "function" in parts[:-1]:
        return parts[parts.index("function") + 1]
    return parts[0]


def mapping_id(function_arn: str, queue_arn: str) -> str:
    """Return the UUID of an event source mapping: the same for the same function and queue, at each start."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{function_arn} {queue_arn}"))


@dataclass(frozen=True, slots=True)
class SqsSourceSpec:
    """An SQS event source mapping."""

    logical_id: str
    function: str
    queue: str
    """Logical id of the queue."""
    batch_size: int = 10
    window_s: float = 0.0
    maximum_concurrency: int | None = None
    report_batch_item_failures: bool = False
    enabled: bool = True
    visibility_s: int = 30
    """Visibility timeout of the queue in seconds."""
    visibility_parameter: str | None = None
    """Template parameter that sets it, if one does."""


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """A schedule: by rate (`every_s`), or by calendar (`cron`)."""

    logical_id: str
    function: str
    every_s: float = 0.0
    input: str | None = None
    enabled: bool = True
    cron: Cron | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """A subscription filter: lines of one function's log group that go to another function."""

    logical_id: str
    group: str
    """Logical id of the log group."""
    source: str
    """Name of the function that writes into it."""
    function: str
    field: str
    value: str
    """Of the JSON lines that are sent."""


@dataclass(frozen=True, slots=True)
class InvokeResult:
    """Result of one invocation.

    `function_error` is None for a normal return, else "Handled" or "Unhandled"; `payload` is then AWS's error
    document as JSON (`errorMessage`, `errorType`, and `stackTrace` or `requestId` where AWS sends them).
    """

    payload: bytes
    function_error: str | None = None
    request_id: str = ""
    duration_ms: float = 0.0
    import_failed: bool = False
    """Whether the function's code could not be loaded: no request reached it."""


class Throttled(Exception):
    """Raised at the reserved (or the host's own) concurrency: AWS's 429 TooManyRequestsException."""


class Invoker(Protocol):
    """Interface of the front and the triggers to functions."""

    async def invoke(self, function: str, payload: bytes) -> InvokeResult:
        """Run `function` (logical id or name) once, synchronously.

        Raises `Throttled` when no execution environment may be started, KeyError for an unknown function.
        """
        ...

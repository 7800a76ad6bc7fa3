"""Event source mappings, as Lambda's API returns and changes them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from local.compute.host import LambdaHost
from local.compute.lambda_functions import unknown_function
from local.compute.lambda_responses import OperationError, invalid, page
from local.template.spec import SqsSourceSpec, function_name, mapping_id

_PAGE: Final = 100
_UNCHANGEABLE: Final = ("FunctionName", "FilterCriteria", "FunctionResponseTypes", "ProvisionedPollerConfig")
_LIMITS: Final = {"BatchSize": (1, 10_000), "MaximumBatchingWindowInSeconds": (0, 300)}
_CONCURRENCY: Final = (2, 1000)
_MOST_WITHOUT_WINDOW: Final = 10


class EventSource(Protocol):
    """Running event source, as a mapping uses it."""

    spec: SqsSourceSpec
    """Its current configuration."""
    queue_arn: str
    """ARN of the queue that it polls."""

    @property
    def busy(self) -> bool:
        """Return whether invocations are in flight."""

    @property
    def enabled(self) -> bool:
        """Return whether it polls."""

    @enabled.setter
    def enabled(self, value: bool) -> None: ...

    def configure(self, spec: SqsSourceSpec) -> None:
        """Replace batch settings and concurrency."""


@dataclass(slots=True)
class _Mapping:
    source: EventSource
    function_arn: str
    modified: float = field(default_factory=time.time)

    @property
    def id(self) -> str:
        """UUID: the same for the same function and queue, at every start."""
        return mapping_id(self.function_arn, self.source.queue_arn)

    @property
    def state(self) -> str:
        if self.source.enabled:
            return "Enabled"
        return "Disabling" if self.source.busy else "Disabled"


class EventSourceMappings:
    """ListEventSourceMappings, GetEventSourceMapping and UpdateEventSourceMapping over running sources."""

    def __init__(self, host: LambdaHost) -> None:
        self._host = host
        self._mappings: dict[str, _Mapping] = {}

    def add(self, source: EventSource) -> str:
        """Register a source as a mapping; returns its UUID."""
        mapping = _Mapping(source, self._host.arn(source.spec.function))
        self._mappings[mapping.id] = mapping
        return mapping.id

    def list(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return one page of the mappings, filtered by `FunctionName` and `EventSourceArn` if given."""
        chosen = list(self._mappings.values())
        if reference := query.get("FunctionName"):
            name = function_name(reference)
            try:
                arn = self._host.arn(name)
            except KeyError:
                raise unknown_function(self._host, name) from None
            chosen = [each for each in chosen if each.function_arn == arn]
        if queue := query.get("EventSourceArn"):
            chosen = [each for each in chosen if each.source.queue_arn == queue]
        part, rest = page(chosen, query, _PAGE)
        return {"EventSourceMappings": [self._shown(each) for each in part], **rest}

    def get(self, mapping_id: str) -> dict[str, Any]:
        """Return one mapping. Raises OperationError (404) when there is none."""
        return self._shown(self._find(mapping_id))

    def update(self, mapping_id: str, body: bytes) -> dict[str, Any]:
        """Enable or disable it, or change batch settings or concurrency; the source applies it at once."""
        mapping = self._find(mapping_id)
        changes = _read(body)
        spec = _changed(mapping.source.spec, changes)
        enabled = changes.get("Enabled")
        if enabled not in (None, True, False):
            raise invalid("Enabled must be true or false.")
        if spec != mapping.source.spec:
            mapping.source.configure(spec)
        if enabled is not None:
            mapping.source.enabled = enabled
        mapping.modified = time.time()
        return self._shown(mapping)

    def _find(self, mapping_id: str) -> _Mapping:
        try:
            return self._mappings[mapping_id]
        except KeyError:
            message = "The resource you requested does not exist."
            raise OperationError(404, "ResourceNotFoundException", message) from None

    def _shown(self, mapping: _Mapping) -> dict[str, Any]:
        spec = mapping.source.spec
        prefix = f"arn:aws:lambda:{self._host.region}:{self._host.account_id}:event-source-mapping"
        scaling = {} if spec.maximum_concurrency is None else {"MaximumConcurrency": spec.maximum_concurrency}
        return {
            "UUID": mapping.id,
            "EventSourceMappingArn": f"{prefix}:{mapping.id}",
            "EventSourceArn": mapping.source.queue_arn,
            "FunctionArn": mapping.function_arn,
            "BatchSize": spec.batch_size,
            "MaximumBatchingWindowInSeconds": int(spec.window_s),
            "FunctionResponseTypes": ["ReportBatchItemFailures"] if spec.report_batch_item_failures else [],
            "ScalingConfig": scaling,
            "State": mapping.state,
            "StateTransitionReason": "USER_INITIATED",
            "LastModified": mapping.modified,
        }


def _read(body: bytes) -> dict[str, Any]:
    try:
        changes = json.loads(body or b"{}")
    except ValueError:
        changes = None
    if not isinstance(changes, dict):
        raise OperationError(400, "InvalidRequestContentException", "The request body is no JSON object.")
    for name in _UNCHANGEABLE:
        if changes.get(name) is not None:
            raise invalid(f"{name} cannot be changed in the local cloud; change template.yaml.")
    return changes


def _changed(spec: SqsSourceSpec, changes: Mapping[str, Any]) -> SqsSourceSpec:
    """Return the changed spec. Raises OperationError (400) for a value that AWS would reject."""
    batch_size = _number(changes, "BatchSize", _LIMITS["BatchSize"], spec.batch_size)
    name = "MaximumBatchingWindowInSeconds"
    window = _number(changes, name, _LIMITS[name], int(spec.window_s))
    if batch_size > _MOST_WITHOUT_WINDOW and window < 1:
        raise invalid(f"{name} must be at least 1 when BatchSize is more than {_MOST_WITHOUT_WINDOW}.")
    scaling = changes.get("ScalingConfig")
    concurrency = spec.maximum_concurrency
    if scaling is not None:
        # An empty object removes the limit.
        given = isinstance(scaling, dict) and scaling.get("MaximumConcurrency") is not None
        concurrency = _number(scaling, "MaximumConcurrency", _CONCURRENCY, 0) if given else None
    window_s = spec.window_s if changes.get(name) is None else float(window)
    return replace(spec, batch_size=batch_size, window_s=window_s, maximum_concurrency=concurrency)


def _number(given: Mapping[str, Any], name: str, limits: tuple[int, int], default: int) -> int:
    value = given.get(name)
    if value is None:
        return default
    low, high = limits
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise invalid(f"{name} must be a number from {low} to {high}.")
    return value

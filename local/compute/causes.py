"""What an invocation is for, read from its event: log files keep it, so that a job can be followed."""

from __future__ import annotations

import re
from typing import Any

_JOB = re.compile(rb'\\"job_id\\":\s*\\"([^"\\]{1,100})\\"')
"""In the body of an SQS record or of an HTTP request, which is JSON within JSON: there quotes are escaped. So
the id in a path, of a caller who only looks at a job, is not meant."""
_GATEWAY_REQUEST = re.compile(rb'"requestContext":\{.{0,4000}?"requestId":"([^"]{1,100})"', re.DOTALL)
_ROOT = re.compile(r"Root=([0-9a-fA-F-]{1,64})")


def causes(payload: bytes, trace_id: str | None) -> dict[str, Any]:
    """The jobs in an event, the gateway's request id, the trace it belongs to; without what is not there."""
    found: dict[str, Any] = {}
    if jobs := list(dict.fromkeys(job.decode("utf-8", "replace") for job in _JOB.findall(payload))):
        found["jobs"] = jobs
    if request := _GATEWAY_REQUEST.search(payload):
        found["gateway_request_id"] = request[1].decode("utf-8", "replace")
    if trace_id and (root := _ROOT.search(trace_id)):
        found["trace"] = root[1]
    return found

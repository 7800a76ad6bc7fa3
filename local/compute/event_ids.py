"""Correlation ids in an invocation's event; log files keep them, so that a job can be traced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

_JOB: Final = b'\\"job_id\\":'
"""In the body of an SQS record or of an HTTP request, which is JSON within JSON: there quotes are escaped. So
the id in a path, of a request that only reads a job, does not match.
"""
_ID: Final = re.compile(rb'\s*\\"([^"\\]{1,100})\\"')
_OWN_JOB: Final = b'"job_id":'
"""In the event itself, of a function that another function invokes."""
_OWN_ID: Final = re.compile(rb'\s*"([^"\\]{1,100})"')
_PATH: Final = b'"pathParameters":'
_CONTEXT: Final = b'"requestContext":{'
_REQUEST: Final = b'"requestId":"'
_ROOT: Final = re.compile(r"Root=([0-9a-fA-F-]{1,64})")


def event_ids(payload: bytes, trace_id: str | None) -> dict[str, Any]:
    """Return the job ids, the gateway's request id and the trace id of an event; absent ones are left out."""
    found: dict[str, Any] = {}
    # Plain searches: a pattern over a whole event would take milliseconds of the event loop's thread.
    context = payload.find(_CONTEXT)
    jobs = list(_jobs(payload, _JOB, _ID))
    if context < 0 and _PATH not in payload:
        jobs += _jobs(payload, _OWN_JOB, _OWN_ID)
    if jobs:
        found["jobs"] = list(dict.fromkeys(jobs))
    at = payload.find(_REQUEST, context) if context >= 0 else -1
    if at >= 0:
        begin = at + len(_REQUEST)
        found["gateway_request_id"] = (
            payload[begin : begin + 100].partition(b'"')[0].decode("utf-8", "replace")
        )
    if trace_id and (root := _ROOT.search(trace_id)):
        found["trace"] = root[1]
    return found


def _jobs(payload: bytes, key: bytes, pattern: re.Pattern[bytes]) -> Iterator[str]:
    at = payload.find(key)
    while at >= 0:
        after = at + len(key)
        if name := pattern.match(payload, after):
            yield name[1].decode("utf-8", "replace")
        at = payload.find(key, after)

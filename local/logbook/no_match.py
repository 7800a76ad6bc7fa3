"""Explanations for an empty log search."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


def no_job(job: str) -> str:
    """Return the text for a job without log lines."""
    return (
        f"no function logged anything for job {job}; its database records: indexmill trace {job}; "
        "all jobs: indexmill jobs"
    )


def no_request(request: str, access_log: Path) -> str:
    """Return the text for a request without log lines; the gateway may have answered it itself."""
    answered = _answer(access_log, request)
    if answered is not None:
        kind = answered.get("limit_req_status", "-")
        why = "" if kind == "-" else f" ({kind})"
        return (
            f"no function ran for request {request}: the gateway itself answered "
            f"{answered.get('status')}{why} to {answered.get('method')} {answered.get('path')}"
        )
    return (
        f"no function logged anything for request {request}, and the gateway does not know it; an id "
        f"is the X-Request-Id of its answer and the request_id of an error; all requests: {access_log}"
    )


def not_of(functions: Collection[str], elsewhere: Collection[str]) -> str:
    """Return the text for matching lines of other functions only."""
    asked, found = (", ".join(sorted(names)) for names in (functions, elsewhere))
    return f"{asked} logged nothing of it; {found} did"


def not_run(functions: Collection[str]) -> str:
    """Return the text for functions without logs."""
    have = "have" if len(functions) > 1 else "has"
    return f"{', '.join(sorted(functions))} {have} not run yet"


def _answer(access_log: Path, request: str) -> Mapping[str, Any] | None:
    """Return the gateway's newest entry about this request."""
    try:
        lines = access_log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        if request in line and (entry := _entry(line)).get("request_id", "").startswith(request):
            return entry
    return None


def _entry(line: str) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

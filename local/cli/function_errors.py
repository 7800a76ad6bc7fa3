"""Errors of functions, printed while a command waits for its jobs."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Collection, Iterator
from typing import Any, Final
from urllib.request import urlopen

from local.cli.terminal import note

_EVERY_S: Final = 0.5
_TIMEOUT_S: Final = 5.0


@contextlib.contextmanager
def function_errors_shown(control: str, job_ids: Collection[str] | None = None) -> Iterator[None]:
    """Print each error of a function once, as a note, while the body runs.

    With `job_ids` those of invocations that had one of these jobs, also before the body began; else all from
    now on. `control` is the base URL of the stack's control API.
    """
    from local.stack.function_errors import sentence

    last = max((each["number"] for each in _read(control, 0)), default=0) if job_ids is None else 0
    ended = threading.Event()

    def follow() -> None:
        shown: set[tuple[str, str]] = set()
        seen = last
        while not ended.wait(_EVERY_S):
            for each in _read(control, seen):
                seen = each["number"]
                jobs = [job for job in each["jobs"] if job_ids is None or job in job_ids]
                kind = (each["function"], each["error"])
                if (jobs or job_ids is None) and kind not in shown:
                    shown.add(kind)
                    note(sentence(each, _command(each, jobs)))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def show_errors_behind(control: str, request_id: str) -> None:
    """Print the errors of the functions that answered this request of the gateway, each once, as a note."""
    from local.stack.function_errors import sentence

    behind = [each for each in _read(control, 0) if each["gateway_request_id"] == request_id]
    for line in dict.fromkeys(sentence(each, f"logs --request {request_id}") for each in behind):
        note(line)


def _command(error: dict[str, Any], jobs: list[str]) -> str:
    return f"trace {jobs[0][:8]}" if jobs else f"logs --request {error['request_id']}"


def _read(control: str, since: int) -> list[dict[str, Any]]:
    """Return the errors after number `since`; none when the stack does not answer."""
    try:
        with urlopen(f"{control}/errors?since={since}", timeout=_TIMEOUT_S) as answer:  # noqa: S310 - own loopback port
            found: list[dict[str, Any]] = json.load(answer)
    except (OSError, ValueError):
        return []
    return found

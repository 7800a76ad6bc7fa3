"""Answer CloudFormation, which runs the migrations as a custom resource before it changes other functions.

A create or update request is answered SUCCESS when `work` returned, else FAILED: CloudFormation then rolls
the stack back. A delete request does nothing. Neither does an update to an older release: it is part of a
rollback, which should not depend on the database. The rollback of an update without another release looks
like any other update, and runs the migrations again.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import psycopg

PHYSICAL_ID = "indexmill-schema"
"""Always the same: another one would make CloudFormation delete the old one."""
_MARGIN_S = 15.0
"""Left of the function's time for the cancelled statement and the answer."""
_ANSWER_S = 10.0
_REASON_LENGTH = 1_000
"""Characters; CloudFormation takes an answer of 4,096 bytes."""
_VERSION = re.compile(r":function:[^:]+:(\d+)$")


class OutOfTime(KeyboardInterrupt):
    """The time is up. psycopg cancels a running statement on a KeyboardInterrupt, so no lock stays behind."""


def is_request(event: Mapping[str, Any]) -> bool:
    """Return whether CloudFormation sent `event`."""
    return "ResponseURL" in event and "RequestType" in event


def respond(
    event: Mapping[str, Any], context: Any, work: Callable[[], object], told: tuple[type[Exception], ...]
) -> dict[str, Any]:
    """Do `work` if the request asks for it, send the answer to CloudFormation, and return it.

    `told` are errors whose text goes into the answer. `Data.ParametersDigest` is a digest of the resource's
    properties but the release. Raises OSError when the answer cannot be sent; Lambda then invokes again.
    """
    properties = event.get("ResourceProperties", {})
    reason = None if _is_nothing_to_do(event) else _attempt(work, context, told)
    answer = {
        "Status": "FAILED" if reason else "SUCCESS",
        "Reason": f"{reason}; see the log stream {context.log_stream_name}" if reason else "",
        "PhysicalResourceId": PHYSICAL_ID,
        **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
        "Data": {"ParametersDigest": _digest(properties)},
    }
    # The signature of the URL covers an empty content type.
    headers = {"Content-Type": ""}
    body = json.dumps(answer).encode()
    # CloudFormation names the address.
    request = urllib.request.Request(event["ResponseURL"], body, headers, method="PUT")  # noqa: S310
    with urllib.request.urlopen(request, timeout=_ANSWER_S):  # noqa: S310
        return answer


def _is_nothing_to_do(event: Mapping[str, Any]) -> bool:
    if event["RequestType"] != "Update":
        return bool(event["RequestType"] == "Delete")
    old, new = (_version(event.get(name, {})) for name in ("OldResourceProperties", "ResourceProperties"))
    return old is not None and new is not None and new < old


def _version(properties: Mapping[str, Any]) -> int | None:
    """Return the number of the function version in `Release`; Lambda's only ever grow."""
    found = _VERSION.search(str(properties.get("Release", "")))
    return int(found[1]) if found else None


def _attempt(work: Callable[[], object], context: Any, told: tuple[type[Exception], ...]) -> str | None:
    """Do the work; return why it failed, or None."""
    seconds = context.get_remaining_time_in_millis() / 1000 - _MARGIN_S
    try:
        with _limit(seconds):
            work()
    except OutOfTime:
        return f"the migrations took more than {seconds:.0f} s"
    except told as error:
        return str(error)[:_REASON_LENGTH]
    except Exception as error:  # noqa: BLE001 - whatever it is, CloudFormation has to know
        return _describe(error)[:_REASON_LENGTH]
    return None


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the block after `seconds`. For the main thread, where Lambda runs a handler."""

    def stop(_signal: int, _frame: object) -> NoReturn:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _describe(error: Exception) -> str:
    """Return what failed, without secrets: only the server's texts never quote a connection string."""
    kind = type(error).__name__
    if isinstance(error, psycopg.Error) and error.sqlstate:
        return f"{kind} ({error.sqlstate}): {error.diag.message_primary}"
    return kind


def _digest(properties: Mapping[str, Any]) -> str:
    given = {name: value for name, value in properties.items() if name not in {"ServiceToken", "Release"}}
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]

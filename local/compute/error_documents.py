"""AWS's error documents for invocations that the platform ends, and the payload limits."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any, Final

MAX_REQUEST_BYTES = 6_291_456
"""The largest payload of a synchronous invocation."""
MAX_RESPONSE_BYTES = 6_291_556
"""The largest result of a synchronous invocation."""

_LONGEST_REASON: Final = 300
_REQUEST: Final = re.compile(r"^RequestId: \S+ Error: ")
_FRAME: Final = re.compile(r'File "([^"]+)",? [Ll]ine (\d+)')
_INSTALLED: Final = ("-packages/", "<frozen", "/lib/python3")

# The Go runtime's names, because AWS's own service prints those.
_SIGNALS = {
    signal.SIGHUP: "hangup",
    signal.SIGINT: "interrupt",
    signal.SIGQUIT: "quit",
    signal.SIGILL: "illegal instruction",
    signal.SIGTRAP: "trace/breakpoint trap",
    signal.SIGABRT: "aborted",
    signal.SIGBUS: "bus error",
    signal.SIGFPE: "floating point exception",
    signal.SIGKILL: "killed",
    signal.SIGSEGV: "segmentation fault",
    signal.SIGPIPE: "broken pipe",
    signal.SIGALRM: "alarm clock",
    signal.SIGTERM: "terminated",
}


class PayloadTooLarge(Exception):
    """Raised for a request over 6 MB: AWS's 413 RequestTooLargeException."""


class HostStopped(Exception):
    """Raised when the host was stopped during, or before, the invocation."""


def document(error_type: str, message: str) -> bytes:
    """Return an error document in AWS's field order."""
    return json.dumps({"errorType": error_type, "errorMessage": message}).encode()


def error_type(failed: bytes) -> str:
    """Return the error type of an error document."""
    return str(_fields(failed).get("errorType") or "Unhandled")


def reason(failed: bytes) -> str:
    """Return an error document as one line, without the request id in front of the platform's errors."""
    message = _REQUEST.sub("", str(_fields(failed).get("errorMessage") or "")).strip()
    return shortened(f"{error_type(failed)}: {message}" if message else error_type(failed))


def shortened(text: str) -> str:
    """Return the text as one line that is not too long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 1] + "…"


def place(failed: bytes) -> str | None:
    """Return where it failed, as `path:line` of the last frame that is no installed package's, or None."""
    trace = _fields(failed).get("stackTrace")
    return last_place("\n".join(map(str, trace))) if isinstance(trace, list) else None


def last_place(trace: str) -> str | None:
    """Return the same of a traceback."""
    frames = _FRAME.findall(trace)
    own = [frame for frame in frames if not any(part in frame[0] for part in _INSTALLED)]
    return ":".join((own or frames)[-1]) if frames else None


def _fields(failed: bytes) -> dict[str, Any]:
    try:
        found = json.loads(failed)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def timed_out(request_id: str, seconds: float) -> bytes:
    """Return the document for a function, or an initialisation, that reached its time-out."""
    return document(
        "Sandbox.Timedout", f"RequestId: {request_id} Error: Task timed out after {seconds:.2f} seconds"
    )


def exited(request_id: str, wait_status: int) -> bytes:
    """Return the document for a process that exited or was killed; `wait_status` as from `os.wait`."""
    return document("Runtime.ExitError", f"RequestId: {request_id} Error: {exit_reason(wait_status)}")


def exit_reason(wait_status: int) -> str:
    """Return how the process ended, in AWS's words."""
    if os.WIFSIGNALED(wait_status):
        number = os.WTERMSIG(wait_status)
        name = _SIGNALS.get(signal.Signals(number)) if number in signal.valid_signals() else None
        return f"Runtime exited with error: signal: {name or number}"
    code = os.waitstatus_to_exitcode(wait_status)
    return (
        f"Runtime exited with error: exit status {code}"
        if code
        else "Runtime exited without providing a reason"
    )


def not_started(request_id: str, reason: object) -> bytes:
    """Return the document for an execution environment that this machine could not start."""
    return document("Sandbox.StartFailure", f"RequestId: {request_id} Error: {reason}")


def response_too_large() -> bytes:
    """Return the document for a result over `MAX_RESPONSE_BYTES`."""
    return document(
        "Function.ResponseSizeTooLarge",
        f"Response payload size exceeded maximum allowed payload size ({MAX_RESPONSE_BYTES} bytes).",
    )

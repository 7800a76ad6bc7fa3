"""Platform lines of a function's log (START, END, REPORT), and attribution of lines to requests."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from local.compute import error_documents
from local.compute.event_ids import event_ids
from local.compute.invocation import Invocation
from local.compute.log_files import LogFiles
from local.compute.log_filter import passes
from local.template.spec import FunctionSpec

_MOST_KEPT: Final = 50
"""Number of initialisation lines that are kept for the request that fails with it."""


class InvocationLog:
    """Log of one execution environment: each line belongs to the request that was sent to it last."""

    def __init__(self, files: LogFiles, spec: FunctionSpec) -> None:
        self._files = files
        self._spec = spec
        self._current: Invocation | None = None
        self._loading: deque[tuple[str, str]] = deque(maxlen=_MOST_KEPT)
        self.init_ms = 0.0
        """Shown in the next REPORT, once."""

    def line(self, stream: str, message: str, more: Mapping[str, Any] | None = None) -> None:
        """Log a line of the process, unless its level is filtered; while importing it has no request."""
        if stream != "platform" and self._spec.log_level and not passes(message, self._spec.log_level):
            return
        current = self._current
        if current is None:
            self._loading.append((stream, message))
        elif current.tail is not None:
            current.tail.add(message)
        self._files.write(
            self._spec.name, current.request_id if current is not None else None, stream, message, more
        )

    def start(self, invocation: Invocation) -> None:
        """Attribute the following lines to this invocation."""
        self._current = invocation
        self._loading.clear()
        started = f"START RequestId: {invocation.request_id} Version: $LATEST"
        self.line("platform", started, event_ids(invocation.payload, invocation.trace_id))

    def init_failed(self, invocation: Invocation, failed: bytes, took_ms: float, peak_mb: float) -> None:
        """Log that the initialisation failed with the error document `failed`, and `invocation` with it.

        Lines written meanwhile belong to no request; they are repeated for this one, as AWS does by retrying
        the initialisation.
        """
        lines = list(self._loading)
        self.start(invocation)
        for stream, message in lines:
            self.line(stream, message)
        kind = error_documents.error_type(failed)
        if not any(kind in message for _, message in lines):
            self.line("platform", f"INIT_ERROR {error_documents.reason(failed)}")
        self.init_ms = took_ms
        self.end(invocation, peak_mb, kind, failed)

    def end(
        self, invocation: Invocation, peak_mb: float, status: str | None, failed: bytes | None = None
    ) -> None:
        """Log END and REPORT; `status` is `timeout`, an error type of the platform, or None.

        `failed` is the error document of an invocation that did not succeed; its reason in one line and its
        place in the code, which AWS's lines do not contain, are for readers of the file and listeners only.
        """
        duration = invocation.duration_ms()
        # AWS reports a time-out with the limit itself as duration.
        if status == "timeout":
            duration = self._spec.timeout_s * 1e3
        more = {}
        if failed is not None:
            more = {"failure": error_documents.reason(failed), "place": error_documents.place(failed)}
        self.line("platform", f"END RequestId: {invocation.request_id}", more)
        fields = [
            f"REPORT RequestId: {invocation.request_id}",
            f"Duration: {duration:.2f} ms",
            f"Billed Duration: {math.ceil(duration)} ms",
            f"Memory Size: {self._spec.memory_mb} MB",
            f"Max Memory Used: {math.ceil(min(peak_mb, self._spec.memory_mb))} MB",
        ]
        if self.init_ms:
            fields.append(f"Init Duration: {self.init_ms:.2f} ms")
            self.init_ms = 0.0
        if status == "timeout":
            fields.append("Status: timeout")
        elif status is not None:
            fields += ["Status: error", f"Error Type: {status}"]
        self.line("platform", "\t".join(fields) + "\t")

"""What Lambda itself writes into a function's log, and whose line is whose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from local.compute.causes import causes
from local.compute.invocation import Invocation
from local.compute.log_files import LogFiles
from local.spec import FunctionSpec


class InvocationLog:
    """The log of one execution environment: each line belongs to the request that was given to it last."""

    def __init__(self, files: LogFiles, spec: FunctionSpec) -> None:
        self._files = files
        self._spec = spec
        self._current: Invocation | None = None
        self.init_ms = 0.0
        """Shown in the next REPORT, once."""

    def line(self, stream: str, message: str, more: Mapping[str, Any] | None = None) -> None:
        """A line that the process wrote; it has no request while the module is imported."""
        current = self._current
        if current is not None and current.tail is not None:
            current.tail.add(message)
        self._files.write(
            self._spec.name, current.request_id if current is not None else None, stream, message, more
        )

    def start(self, invocation: Invocation) -> None:
        """From here on, lines are this invocation's."""
        self._current = invocation
        started = f"START RequestId: {invocation.request_id} Version: $LATEST"
        self.line("platform", started, causes(invocation.payload, invocation.trace_id))

    def end(self, invocation: Invocation, peak_mb: float, status: str | None) -> None:
        """END and REPORT; `status` is `timeout`, an error type of the platform, or None."""
        duration = invocation.duration_ms()
        # A time-out shows in AWS's figures as the limit itself.
        if status == "timeout":
            duration = self._spec.timeout_s * 1e3
        self.line("platform", f"END RequestId: {invocation.request_id}")
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

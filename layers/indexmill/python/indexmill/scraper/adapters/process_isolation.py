"""Isolation in a child process, with limits on time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Final

from indexmill.contracts.errors import ErrorCode, PermanentError
from indexmill.scraper.classify import failure
from indexmill.scraper.extract.content import Extracted, RawContent

_CHILD: Final = "indexmill.scraper.extract.child"
_OWN_MB: Final = 192
"""Of the function's memory: what this process takes beside the children, with ordinary pages."""
_ROOMY_MB: Final = 1024
"""From this size on two children fit, and share more than half a core."""
_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "PYTHONDONTWRITEBYTECODE")


class ProcessIsolation:
    """Reads each content in a fresh process: 60 ms, and whatever it does there stays there."""

    def __init__(self, *, limit_s: float = 20.0, memory_bytes: int = 1 << 30, at_once: int = 2) -> None:
        """`limit_s` bounds a content's time, `memory_bytes` its address space, `at_once` the processes."""
        self._limit_s = limit_s
        self._memory_bytes = memory_bytes
        self._slots = threading.BoundedSemaphore(at_once)

    @classmethod
    def within(cls, function_mb: int) -> ProcessIsolation:
        """Return an isolation whose children leave a function of `function_mb` MiB memory for itself."""
        at_once = 2 if function_mb >= _ROOMY_MB else 1
        return cls(memory_bytes=((function_mb - _OWN_MB) << 20) // at_once, at_once=at_once)

    def extract(self, content: RawContent, *, timeout_s: float) -> Extracted:
        """Return the readable text. Blocks."""
        if not self._slots.acquire(timeout=max(0.0, timeout_s)):
            raise failure(ErrorCode.DEADLINE_EXCEEDED)
        try:
            return self._run(content, max(0.0, min(timeout_s, self._limit_s)))
        finally:
            self._slots.release()

    def _run(self, content: RawContent, time_s: float) -> Extracted:
        limits = [str(int(self._limit_s) + 1), str(self._memory_bytes)]
        command = [sys.executable, "-m", _CHILD, content.kind.value, content.charset or "", *limits]
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        try:
            # Our own interpreter and module; no shell, and no text of the page on the command line.
            done = subprocess.run(
                command, input=content.body, capture_output=True, timeout=time_s, env=environment, check=False
            )
        except subprocess.TimeoutExpired as error:
            cause = ErrorCode.PARSE_ERROR if time_s == self._limit_s else ErrorCode.DEADLINE_EXCEEDED
            raise failure(cause, "The page takes too long to read") from error
        if done.returncode != 0:
            raise failure(ErrorCode.PARSE_ERROR, "The page cannot be read within its limits")
        answer = json.loads(done.stdout)
        if "code" in answer:
            raise PermanentError(answer["code"], answer["message"])
        return Extracted(answer["markdown"], answer["title"], answer["language"])

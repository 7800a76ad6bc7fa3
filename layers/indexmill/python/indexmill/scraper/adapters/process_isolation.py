"""Isolation in a child process, with limits on time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from tempfile import TemporaryFile
from typing import IO, Final

from indexmill.contracts.errors import ErrorCode, PermanentError, failure
from indexmill.scraper.extract.content import LONG_TEXT_BYTES, Extracted, Kind, RawContent, Unusable

_CHILD: Final = "indexmill.scraper.extract.child"
_OWN_MB: Final = 192
"""Of the function's memory: what this process takes beside a child, with ten pages of the largest size."""
_PDF_BYTES: Final = 256 << 20
_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "PYTHONDONTWRITEBYTECODE")


class ProcessIsolation:
    """Reads each content in a fresh process: 60 ms, and whatever it does there stays there."""

    def __init__(self, *, limit_s: float = 20.0, memory_bytes: int = _PDF_BYTES) -> None:
        """`limit_s` bounds a content's time, `memory_bytes` its address space: a PDF's, 256 MiB at most."""
        self._limit_s = limit_s
        self._memory_bytes = memory_bytes

    @classmethod
    def within(cls, function_mb: int) -> ProcessIsolation:
        """Return an isolation whose child leaves a function of `function_mb` MiB memory for itself."""
        return cls(memory_bytes=(function_mb - _OWN_MB) << 20)

    def extract(self, content: RawContent, *, timeout_s: float) -> Extracted:
        """Return the readable text. Blocks."""
        time_s = max(0.0, min(timeout_s, self._limit_s))
        memory = min(self._memory_bytes, _PDF_BYTES) if content.kind is Kind.PDF else self._memory_bytes
        limits = [str(int(self._limit_s) + 1), str(memory)]
        wanted = ",".join(name for name, value in asdict(content.wanted).items() if value)
        command = [sys.executable, "-m", _CHILD, content.kind.value, content.charset or "", wanted, *limits]
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        # From a pipe, its text would be here twice when it ends.
        with TemporaryFile() as output:
            errors = self._run(command, content.body, output, time_s, environment)
            output.seek(0)
            text = output.read()
        # Libraries may have written there before.
        answer = json.loads(errors.rpartition(b"\n")[2])
        if "code" in answer and "links" in answer:
            raise Unusable(**answer)
        if "code" in answer:
            raise PermanentError(answer["code"], answer["message"])
        answer |= {name: tuple(answer[name]) for name in ("robots", "links", "notes", "page_starts")}
        if len(text) > LONG_TEXT_BYTES:
            return Extracted(markdown="", encoded=text, **answer)
        return Extracted(markdown=text.decode(), **answer)

    def _run(
        self, command: list[str], body: bytes, output: IO[bytes], time_s: float, environment: dict[str, str]
    ) -> bytes:
        """Return what the child wrote on stderr, when it ended well; its stdout is `output`."""
        try:
            # Our own interpreter and module; no shell, and no text of the page on the command line.
            done = subprocess.run(
                command,
                input=body,
                stdout=output,
                stderr=subprocess.PIPE,
                timeout=time_s,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            cause = ErrorCode.PARSE_ERROR if time_s == self._limit_s else ErrorCode.DEADLINE_EXCEEDED
            raise failure(cause, "The page takes too long to read") from error
        if done.returncode != 0:
            raise failure(ErrorCode.PARSE_ERROR, "The page cannot be read within its limits")
        return done.stderr

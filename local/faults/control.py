"""Fault control folder: rules, toxics and records of faults, shared by all processes of a stack.

rules.json      active rules, and whether calls are traced; replaced as a whole
toxics.json     active toxics, by the name of the proxy; replaced as a whole
skews.json      clock skew of functions in seconds; replaced as a whole
counts/<rule>   how many calls a rule has seen, under a lock, so that exactly one process is hit
marks.jsonl     jobs by mark, as found in messages
fired.jsonl     each fault that happened
sent.jsonl      each message that a function sent, with its attributes
trace.jsonl     each call with an external effect, in the order in which they began
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from local.faults.rules import Rule
from local.faults.toxics import Toxic

_RULES: Final = "rules.json"
_TOXICS: Final = "toxics.json"
_SKEWS: Final = "skews.json"
_JOB: Final = re.compile(r'"job_id":\s*"([\w-]{8,100})"')


class FaultControl:
    """Fault control folder, for the test that sets faults and for every process that applies them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rules: list[Rule] = []
        self._tracing = False
        self._only = ""
        self._seen: tuple[int, int] | None = None
        self._toxics: dict[str, Toxic] = {}
        self._toxics_seen: tuple[int, int] | None = None
        self._jobs: dict[str, set[str]] = defaultdict(set)
        self._jobs_size = 0

    # For tests:

    def reset(self, rules: Iterable[Rule] = ()) -> None:
        """Reset all records and activate these rules."""
        (self.folder / "counts").mkdir(parents=True, exist_ok=True)
        for name in ("fired.jsonl", "marks.jsonl", "sent.jsonl", "trace.jsonl"):
            (self.folder / name).write_bytes(b"")
        self.arm(rules)
        self.set_toxics()
        self.set_skews()

    def arm(self, rules: Iterable[Rule] = (), *, trace: bool = False, only: str = "") -> None:
        """Activate exactly these rules; counters of the same name start from zero.

        Of several rules that match the same call the first applies. `trace` records calls, with `only` just
        those whose event has that mark or that have no event.
        """
        chosen = list(rules)
        for rule in chosen:
            (self.folder / "counts" / rule.counter).unlink(missing_ok=True)
        self._replace(_RULES, {"trace": trace, "only": only, "rules": [rule.document() for rule in chosen]})

    def set_toxics(self, **toxics: Toxic) -> None:
        """Activate exactly these toxics, by the name of the proxy; none removes all."""
        self._replace(_TOXICS, {name: toxic.document() for name, toxic in toxics.items()})

    def set_skews(self, **seconds: float) -> None:
        """Skew the clocks of exactly these functions from their next invocations on."""
        self._replace(_SKEWS, seconds)

    def fired(self) -> list[dict[str, Any]]:
        """Return the faults that happened: `rule`, `place`, `pid`, `at`."""
        return _lines(self.folder / "fired.jsonl")

    def traced(self) -> list[dict[str, Any]]:
        """Return the traced calls: `place`, `pid`, `request`."""
        return _lines(self.folder / "trace.jsonl")

    def sent(self) -> str:
        """Return all messages that functions sent, each as a line of JSON."""
        try:
            return (self.folder / "sent.jsonl").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    # For every process under test:

    def invocation_started(self, event: str) -> None:
        """Record at the start of an invocation the jobs that belong to the marks in its messages."""
        self._refresh()
        marks = {mark for mark in self._marks() if mark in event}
        for body in _bodies(event) if marks else ():
            for mark in marks:
                if mark in body and (job := _JOB.search(body)) and job[1] not in self._jobs[mark]:
                    _append(self.folder / "marks.jsonl", {"mark": mark, "job": job[1]})

    def toxic(self, proxy: str) -> Toxic | None:
        """Return the active toxic of a proxy."""
        seen = _version(self.folder / _TOXICS)
        if seen != self._toxics_seen:
            document = json.loads((self.folder / _TOXICS).read_text(encoding="utf-8")) if seen else {}
            self._toxics = {name: Toxic(**each) for name, each in document.items()}
            self._toxics_seen = seen
        return self._toxics.get(proxy)

    def skew_of(self, function: str) -> float:
        """Return the clock skew of a function in seconds."""
        try:
            text = (self.folder / _SKEWS).read_text(encoding="utf-8")
        except FileNotFoundError:
            return 0.0
        return float(json.loads(text).get(function, 0.0))

    def record_hit(self, proxy: str, toxic: Toxic) -> None:
        """Record that a toxic hit a connection."""
        fault = {"rule": f"{proxy} {toxic.effect}", "place": proxy, "pid": os.getpid(), "at": time.time()}
        _append(self.folder / "fired.jsonl", fault)

    def record_sent(self, messages: Iterable[Any]) -> None:
        """Record messages that a function is about to send."""
        for each in messages:
            _append(self.folder / "sent.jsonl", each)

    def next_fault(
        self, place: str, *, event: str = "", request: str = "", write: bool = True
    ) -> Rule | None:
        """Count a call that is about to happen; return the fault that applies to it, if any."""
        self._refresh()
        if self._tracing and write and self._is_traced(event):
            _append(self.folder / "trace.jsonl", {"place": place, "pid": os.getpid(), "request": request})
        concerned = [
            rule for rule in self._rules if rule.concerns(place, event, self._jobs.get(rule.mark, ()))
        ]
        # Every matching rule counts the call, whichever applies to it.
        hits = [rule for rule in concerned if self._hit(rule)]
        if not hits:
            return None
        fault = {"rule": hits[0].name or hits[0].text, "place": place, "pid": os.getpid(), "at": time.time()}
        _append(self.folder / "fired.jsonl", fault)
        return hits[0]

    def _refresh(self) -> None:
        seen = _version(self.folder / _RULES)
        if seen is None:
            self._rules, self._tracing, self._seen = [], False, None
            return
        if seen != self._seen:
            document = json.loads((self.folder / _RULES).read_text(encoding="utf-8"))
            self._rules = [Rule(**each) for each in document["rules"]]
            self._tracing, self._only, self._seen = document["trace"], document["only"], seen
        self._read_marks()

    def _marks(self) -> set[str]:
        return {mark for mark in (self._only, *(rule.mark for rule in self._rules)) if mark}

    def _is_traced(self, event: str) -> bool:
        words = (self._only, *self._jobs.get(self._only, ()))
        return not self._only or not event or any(word in event for word in words)

    def _read_marks(self) -> None:
        path = self.folder / "marks.jsonl"
        if self._marks() and (size := path.stat().st_size) != self._jobs_size:
            self._jobs_size = size
            for each in _lines(path):
                self._jobs[each["mark"]].add(each["job"])

    def _replace(self, name: str, document: Any) -> None:
        draft = self.folder / f".{name}.{os.getpid()}"
        draft.write_text(json.dumps(document), encoding="utf-8")
        draft.replace(self.folder / name)

    def _hit(self, rule: Rule) -> bool:
        """Count one call of the rule; return whether it is one of those that are hit."""
        if rule.share < 1.0 and random.random() >= rule.share:  # noqa: S311 - no cryptography
            return False
        counter = os.open(self.folder / "counts" / rule.counter, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(counter, fcntl.LOCK_EX)
            number = int(os.read(counter, 20) or b"0") + 1
            os.pwrite(counter, str(number).encode(), 0)
        finally:
            os.close(counter)
        return rule.nth <= number < rule.nth + rule.times


def _version(path: Path) -> tuple[int, int] | None:
    """Return a value that differs for each content of an atomically replaced file; None without the file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - runs on every call
    except OSError:
        return None
    # A replaced file has another inode, also within one tick of the clock.
    return found.st_ino, found.st_mtime_ns


def _bodies(event: str) -> list[str]:
    """Return the message bodies of a queue event; nothing for other events."""
    try:
        return [str(record["body"]) for record in json.loads(event)["Records"]]
    except (ValueError, KeyError, TypeError):
        return []


def _append(path: Path, document: dict[str, Any]) -> None:
    """Append a line: a single write to a file opened for appending is atomic."""
    line = json.dumps(document).encode() + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    # A last line without a newline is still being written.
    return [json.loads(line) for line in text.split("\n")[:-1] if line]

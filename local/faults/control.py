"""The folder through which faults are switched on, counted and told, by all processes at once.

rules.json      what is to go wrong now, and whether calls are traced; replaced as a whole
toxics.json     what ails connections now, by the name of the proxy; replaced as a whole
skews.json      how many seconds the clocks of functions are wrong; replaced as a whole
counts/<rule>   how many calls a rule has seen, under a lock, so that exactly one process is hit
marks.jsonl     the jobs that a mark stands for, as their messages told
fired.jsonl     each fault that happened
sent.jsonl      each message that a function sent, with its attributes
trace.jsonl     each call that changes something outside, in the order of their beginnings
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
    """One side of the folder: whoever switches, and every process that looks."""

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

    # Who switches.

    def prepare(self, rules: Iterable[Rule] = ()) -> None:
        """Begin anew with these rules."""
        (self.folder / "counts").mkdir(parents=True, exist_ok=True)
        for name in ("fired.jsonl", "marks.jsonl", "sent.jsonl", "trace.jsonl"):
            (self.folder / name).write_bytes(b"")
        self.arm(rules)
        self.ail()
        self.skew()

    def arm(self, rules: Iterable[Rule] = (), *, trace: bool = False, only: str = "") -> None:
        """Let exactly these rules hold from now on; counters of the same name begin anew.

        Of several that hit the same call the first befalls it. `trace` keeps what is called, with `only` just
        where the event has that mark or there is no event.
        """
        chosen = list(rules)
        for rule in chosen:
            (self.folder / "counts" / rule.counter).unlink(missing_ok=True)
        self._replace(_RULES, {"trace": trace, "only": only, "rules": [rule.document() for rule in chosen]})

    def ail(self, **toxics: Toxic) -> None:
        """Let exactly these toxics ail connections from now on, by the name of the proxy; none heals all."""
        self._replace(_TOXICS, {name: toxic.document() for name, toxic in toxics.items()})

    def skew(self, **seconds: float) -> None:
        """Let these functions' clocks, and no others, be wrong from their next invocations on."""
        self._replace(_SKEWS, seconds)

    def fired(self) -> list[dict[str, Any]]:
        """The faults that happened: `rule`, `place`, `pid`, `at`."""
        return _lines(self.folder / "fired.jsonl")

    def traced(self) -> list[dict[str, Any]]:
        """The calls that were traced: `place`, `pid`, `request`."""
        return _lines(self.folder / "trace.jsonl")

    def sent(self) -> str:
        """All messages that functions sent, each as a line of JSON."""
        try:
            return (self.folder / "sent.jsonl").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    # Every process that looks.

    def begins(self, event: str) -> None:
        """An invocation begins: note which jobs the marks in its messages stand for."""
        self._refresh()
        marks = {mark for mark in self._marks() if mark in event}
        for body in _bodies(event) if marks else ():
            for mark in marks:
                if mark in body and (job := _JOB.search(body)) and job[1] not in self._jobs[mark]:
                    _append(self.folder / "marks.jsonl", {"mark": mark, "job": job[1]})

    def toxic(self, proxy: str) -> Toxic | None:
        """What ails the connections of a proxy now."""
        seen = _version(self.folder / _TOXICS)
        if seen != self._toxics_seen:
            document = json.loads((self.folder / _TOXICS).read_text(encoding="utf-8")) if seen else {}
            self._toxics = {name: Toxic(**each) for name, each in document.items()}
            self._toxics_seen = seen
        return self._toxics.get(proxy)

    def skew_of(self, function: str) -> float:
        """How many seconds a function's clock is ahead."""
        try:
            text = (self.folder / _SKEWS).read_text(encoding="utf-8")
        except FileNotFoundError:
            return 0.0
        return float(json.loads(text).get(function, 0.0))

    def befell(self, proxy: str, toxic: Toxic) -> None:
        """Note that a toxic befell a connection."""
        told = {"rule": f"{proxy} {toxic.effect}", "place": proxy, "pid": os.getpid(), "at": time.time()}
        _append(self.folder / "fired.jsonl", told)

    def sends(self, messages: Iterable[Any]) -> None:
        """Note messages that a function is about to send."""
        for each in messages:
            _append(self.folder / "sent.jsonl", each)

    def meet(self, place: str, *, event: str = "", request: str = "", write: bool = True) -> Rule | None:
        """Note a call that is about to happen; the fault that befalls it, if one does."""
        self._refresh()
        if self._tracing and write and self._is_sought(event):
            _append(self.folder / "trace.jsonl", {"place": place, "pid": os.getpid(), "request": request})
        concerned = [
            rule for rule in self._rules if rule.concerns(place, event, self._jobs.get(rule.mark, ()))
        ]
        # Every rule counts the call, whichever befalls it.
        hits = [rule for rule in concerned if self._hit(rule)]
        if not hits:
            return None
        told = {"rule": hits[0].name or hits[0].text, "place": place, "pid": os.getpid(), "at": time.time()}
        _append(self.folder / "fired.jsonl", told)
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

    def _is_sought(self, event: str) -> bool:
        words = (self._only, *self._jobs.get(self._only, ()))
        return not self._only or not event or any(word in event for word in words)

    def _read_marks(self) -> None:
        path = self.folder / "marks.jsonl"
        if self._marks() and (size := path.stat().st_size) != self._jobs_size:
            self._jobs_size = size
            for each in _lines(path):
                self._jobs[each["mark"]].add(each["job"])

    def _replace(self, name: str, document: Any) -> None:
        fresh = self.folder / f".{name}.{os.getpid()}"
        fresh.write_text(json.dumps(document), encoding="utf-8")
        fresh.replace(self.folder / name)

    def _hit(self, rule: Rule) -> bool:
        """Count one call of the rule; whether it is one of those that are hit."""
        if rule.share < 1.0 and random.random() >= rule.share:  # noqa: S311 - chance, not secrecy
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
    """Something else for each content of a file that is only ever replaced; None when there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - on every call
    except OSError:
        return None
    # A replaced file has another inode, also within one tick of the clock.
    return found.st_ino, found.st_mtime_ns


def _bodies(event: str) -> list[str]:
    """The messages of an event of a queue; nothing for other events."""
    try:
        return [str(record["body"]) for record in json.loads(event)["Records"]]
    except (ValueError, KeyError, TypeError):
        return []


def _append(path: Path, document: dict[str, Any]) -> None:
    """Add a line; one write to a file that is open for appending is never torn."""
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
    # Without an end the last line is still being written.
    return [json.loads(line) for line in text.split("\n")[:-1] if line]

"""What is to go wrong, where, and which time.

A place is named `Function/service.operation@target`, for example `ScraperWorker/s3.PutObject@raw`,
`OrchestratorResults/postgres.commit`, `EmbeddingWorker/http.post@embeddings`. A rule in text is

    [Function/]service.operation[@target]:kind[=seconds][#nth][xtimes][~mark]

for example `sqs.SendMessageBatch@ScrapeQueue:kill_after#3`: the third such call dies after it was done. A
place may have `*` in it; what is left out matches everything. With a mark only invocations count whose event
contains it, or names a job whose message once did.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, cast, get_args

Kind = Literal["error", "execute_then_error", "delay", "kill_before", "kill_after", "lose"]
"""error: it is not done and fails. execute_then_error: it is done, and the answer is lost. lose: it is not
done and seems to be (queues' sends only). kill: SIGKILL to the process, before or after it is done."""

_TEXT: Final = re.compile(
    r"(?P<place>[^:]+):(?P<kind>[a-z_]+)(?:=(?P<seconds>\d+(?:\.\d+)?))?(?:#(?P<nth>\d+))?(?:x(?P<times>\d+))?"
    r"(?:~(?P<mark>[\w.-]+))?"
)


class WrongRule(ValueError):
    """A rule's text cannot be read; the message says what is expected."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that goes wrong."""

    place: str
    kind: Kind
    nth: int = 1
    """The matching call, counted over all processes, with which it begins."""
    times: int = 1
    """How many matching calls in a row it befalls."""
    seconds: float = 0.0
    """Of a delay."""
    mark: str = ""
    """Only calls of invocations count whose event contains this."""
    share: float = 1.0
    """Each call is spared by chance: with 0.05 one in twenty is hit. Then only `times` counts."""
    name: str = ""
    """Its counter's name; by default its own text."""

    @property
    def text(self) -> str:
        """The rule as `parse` reads it."""
        seconds = f"={self.seconds:g}" if self.kind == "delay" else ""
        times = f"x{self.times}" if self.times != 1 else ""
        mark = f"~{self.mark}" if self.mark else ""
        return f"{self.place}:{self.kind}{seconds}#{self.nth}{times}{mark}"

    @property
    def counter(self) -> str:
        """A file name of its own."""
        return re.sub(r"[^\w.-]+", "_", self.name or self.text)

    def concerns(self, place: str, event: str, same: Collection[str] = ()) -> bool:
        """Whether a call at `place` in an invocation with this event is one of those that count.

        `same` are words that stand for the mark.
        """
        if not matches(self.place, place):
            return False
        return not self.mark or self.mark in event or any(word in event for word in same)

    def document(self) -> dict[str, Any]:
        """The rule as JSON."""
        return asdict(self)


def matches(pattern: str, place: str) -> bool:
    """Whether a place's name fits a pattern; function and target may be left out of the pattern.

    >>> matches("sqs.SendMessage*@ScrapeQueue", "OrchestratorApi/sqs.SendMessageBatch@ScrapeQueue")
    True
    """
    function, _, call = place.partition("/")
    wanted_function, slash, wanted_call = pattern.rpartition("/")
    if slash and not fnmatchcase(function, wanted_function):
        return False
    return fnmatchcase(call if "@" in wanted_call else call.partition("@")[0], wanted_call)


def parse(text: str) -> Rule:
    """Read one rule. Raises WrongRule."""
    found = _TEXT.fullmatch(text.strip())
    if found is None or found["kind"] not in get_args(Kind):
        kinds = ", ".join(get_args(Kind))
        raise WrongRule(f"{text!r} is no fault; expected PLACE:KIND[=SECONDS][#NTH][xTIMES], KIND of {kinds}")
    return Rule(
        place=found["place"],
        kind=cast("Kind", found["kind"]),
        nth=int(found["nth"] or 1),
        times=int(found["times"] or 1),
        seconds=float(found["seconds"] or 0.0),
        mark=found["mark"] or "",
    )

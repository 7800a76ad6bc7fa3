"""Fault rules: which fault, at which calls, and which of them.

A call is named `Function/service.operation@target`, for example `ScraperWorker/s3.PutObject@raw`,
`OrchestratorResults/postgres.commit`, `EmbeddingWorker/http.post@embeddings`. A rule in text is

    [Function/]service.operation[@target]:kind[=seconds][#nth][xtimes][~mark]

for example `sqs.SendMessageBatch@ScrapeQueue:kill_after#3`: the third such call kills the process after the
call was executed. A name may contain `*`; an omitted part matches everything. With a mark only invocations
count whose event contains it, or names a job whose message once did.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, cast, get_args

Kind = Literal["error", "execute_then_error", "delay", "kill_before", "kill_after", "lose"]
"""error: the call is not executed and fails. execute_then_error: it is executed, and the response is lost.
lose: it is not executed and seems to succeed (queues' sends only). kill: SIGKILL to the process, before or
after the call.
"""

_TEXT: Final = re.compile(
    r"(?P<place>[^:]+):(?P<kind>[a-z_]+)(?:=(?P<seconds>\d+(?:\.\d+)?))?(?:#(?P<nth>\d+))?(?:x(?P<times>\d+))?"
    r"(?:~(?P<mark>[\w.-]+))?"
)


class WrongRule(ValueError):
    """Raised when a rule's text cannot be parsed; the message states the expected form."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault to inject."""

    place: str
    kind: Kind
    nth: int = 1
    """Number of the first matching call that is hit, counted over all processes."""
    times: int = 1
    """Number of consecutive matching calls that are hit."""
    seconds: float = 0.0
    """Seconds of a delay."""
    mark: str = ""
    """Only calls of invocations whose event contains this count."""
    share: float = 1.0
    """Probability that a call is hit: with 0.05 one in twenty. Then only `times` counts."""
    name: str = ""
    """Name of its counter; by default its own text."""

    @property
    def text(self) -> str:
        """The rule in the notation that `parse` reads."""
        seconds = f"={self.seconds:g}" if self.kind == "delay" else ""
        times = f"x{self.times}" if self.times != 1 else ""
        mark = f"~{self.mark}" if self.mark else ""
        return f"{self.place}:{self.kind}{seconds}#{self.nth}{times}{mark}"

    @property
    def counter(self) -> str:
        """Unique file name of the counter."""
        return re.sub(r"[^\w.-]+", "_", self.name or self.text)

    def concerns(self, place: str, event: str, same: Collection[str] = ()) -> bool:
        """Return whether a call at `place` in an invocation with this event counts.

        `same` are synonyms of the mark.
        """
        if not matches(self.place, place):
            return False
        return not self.mark or self.mark in event or any(word in event for word in same)

    def document(self) -> dict[str, Any]:
        """Return the rule as JSON."""
        return asdict(self)


def matches(pattern: str, place: str) -> bool:
    """Return whether a call's name matches a pattern; function and target may be omitted from the pattern.

    >>> matches("sqs.SendMessage*@ScrapeQueue", "OrchestratorApi/sqs.SendMessageBatch@ScrapeQueue")
    True
    """
    function, _, call = place.partition("/")
    wanted_function, slash, wanted_call = pattern.rpartition("/")
    if slash and not fnmatchcase(function, wanted_function):
        return False
    return fnmatchcase(call if "@" in wanted_call else call.partition("@")[0], wanted_call)


def parse(text: str) -> Rule:
    """Parse one rule. Raises WrongRule."""
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

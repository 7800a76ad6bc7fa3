"""A fault that did not hit is tried again, and one that cannot hit is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from local.faults.invariants.violation import Accepted
from tests.faults import enumeration
from tests.faults.enumeration import Run, Shot

ALWAYS, LATER, NEVER = (Shot(place, 1, "kill_before") for place in ("A/sqs.b", "A/sqs.c", "A/sqs.d"))


class Chance:
    """Faults that hit with a given probability; `tries` counts by place."""

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()

    def __call__(self, groups: Sequence[tuple[Shot, ...]]) -> Iterator[Run]:
        for (shot,) in groups:
            self.tries[shot.place] += 1
            fired = shot == ALWAYS or (shot == LATER and self.tries[shot.place] == 3)
            yield Run((shot,), (Accepted(f"{shot.place}-{self.tries[shot.place]}", "u", "docs"),), fired)


def test_what_did_not_happen_is_tried_again_and_no_job_is_forgotten() -> None:
    chance = Chance()
    runs = enumeration.insisted(chance, [(ALWAYS,), (LATER,)])
    assert chance.tries == {"A/sqs.b": 1, "A/sqs.c": 3}
    assert len({job.job_id for run in runs for job in run.jobs}) == len(runs) == 4
    assert enumeration.never_fired(runs) == []


def test_what_cannot_happen_is_named_in_the_end() -> None:
    chance = Chance()
    runs = enumeration.insisted(chance, [(NEVER,), (ALWAYS,)])
    assert enumeration.never_fired(runs) == [(NEVER,)]
    assert chance.tries == {"A/sqs.d": 4, "A/sqs.b": 1}

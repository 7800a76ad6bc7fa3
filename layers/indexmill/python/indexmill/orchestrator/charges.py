"""Charges: shares of the Orchestrator's own work, for the receipts of the jobs that it was done for. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from indexmill.contracts.cost import Amounts, total
from indexmill.platform.meter import sends, split

if TYPE_CHECKING:
    from indexmill.orchestrator.store.results import Transition

_FIRST_BYTES = 500
"""About the size of a first message, which is a URL. What a retried job starts with may be larger: its
further 64 KiB are on no receipt."""


def submitted(due: Mapping[str, float], jobs: int) -> Amounts:
    """Return what each of the jobs that one request submits, of what is `due`."""
    return split(due, [1] * jobs)[0]


def first_message(jobs: int) -> Amounts:
    """Return what each of the jobs that start together: a share of the send of their messages."""
    return split(sends([_FIRST_BYTES] * jobs), [1] * jobs)[0]


def charged(transitions: Sequence[Transition], due: Mapping[str, float]) -> list[Transition]:
    """Return the transitions, each with its share of what is `due` and of the sends of their messages.

    What was not metered stays unknown.
    """
    bodies: dict[str, list[int]] = defaultdict(list)
    for transition in transitions:
        for row in transition.outbox:
            bodies[row.stage].append(len(row.payload.encode()))
    messages = {stage: split(sends(sizes), sizes)[0] for stage, sizes in bodies.items()}
    own = split(due, [1] * len(transitions))
    found = []
    for transition, share in zip(transitions, own, strict=True):
        spent = transition.spent
        if spent is not None:
            spent = total(spent, share, *(messages[row.stage] for row in transition.outbox))
        found.append(replace(transition, spent=spent))
    return found

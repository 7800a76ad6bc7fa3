"""The orchestrator as it was first drawn: it enqueues, then sets the state, and drops early callbacks.

Only here so that the model can show that it finds what that design loses.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from tests.faults.model.fuse import Fuse, Fused
from tests.faults.model.line import Line, Message
from tests.faults.model.system import Kind

_NEXT = {"scraping": "chunking", "chunking": "embedding", "embedding": "done"}
_QUEUE = {"scraping": "scrape", "embedding": "embed"}


class FirstDesign:
    """State in a dictionary, one queue per worker, callbacks that name only a stage."""

    verbs: frozenset[str] = frozenset()

    def __init__(self) -> None:
        """Without jobs."""
        self.fuse = Fuse()
        self.lines = {name: Line(name) for name in ("scrape", "embed", "callbacks")}
        self._queues = {name: Fused(line, self.fuse, "send") for name, line in self.lines.items()}
        self._status: dict[str, str] = {}
        self._ids = itertools.count(1)
        self._set = self.fuse.around(self._status.__setitem__)

    def submit(self, kind: Kind) -> None:
        """Write the row, enqueue, then set the status."""
        job_id = f"job-{next(self._ids)}"
        self._set(job_id, "pending")
        self._enqueue("scraping", job_id)
        self._set(job_id, "scraping")

    def _enqueue(self, stage: str, job_id: str) -> None:
        self._queues[_QUEUE[stage]].send([json.dumps({"job": job_id, "stage": stage})])

    def handle(self, name: str, picked: Sequence[Message]) -> set[str]:
        """Work one by one; each finished message may leave."""
        leaving = set()
        for message in picked:
            task = json.loads(message.body)
            if name == "callbacks":
                self._stage_complete(task["job"], task["stage"])
            else:
                self._queues["callbacks"].send([message.body])
            leaving.add(message.id)
        return leaving

    def _stage_complete(self, job_id: str, stage: str) -> None:
        if self._status.get(job_id) != stage:
            return  # "already advanced": also said of a callback that came before the status was set
        following = _NEXT[stage]
        if following == "chunking":
            following = "embedding"
        if following in _QUEUE:
            self._enqueue(following, job_id)
        self._set(job_id, following)

    def lose(self, name: str, message: Message) -> None:
        """Its messages are not lost: it loses jobs without that."""

    def tick(self, seconds: int) -> None:
        """Nothing runs by the clock: what half an hour later would mend is not part of the comparison."""

    def cancel(self, job_id: str) -> None:
        """It has no cancel."""

    def retry(self, job_id: str) -> None:
        """It has no retry."""

    def replay(self, job_id: str, *, stored: bool) -> None:
        """It has no replay."""

    def jobs(self) -> dict[str, str]:
        """Return each job's status."""
        return dict(self._status)

    def stranded(self) -> list[str]:
        """Return nothing: the end tells."""
        return []

    def wrongs(self) -> list[str]:
        """Return nothing: a lost job is wrong enough."""
        return []

    def close(self) -> None:
        """Nothing is held."""

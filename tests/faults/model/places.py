"""Where the message of a job's stage is: still to be sent, in its queue, reported, or nowhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tests.faults.model.line import Line, Message
from tests.faults.model.system import dead_line

STAGES: Final = {"scrape": "scraping", "chunk": "chunking", "embed": "embedding"}
"""By the queue that hands the stage its work."""
_BY_LINE: Final = STAGES | {dead_line(name): stage for name, stage in STAGES.items()}

Work = tuple[str, str, int]
"""A job, its stage and its attempt."""


def work_of(name: str, message: Message) -> Work | None:
    """Return what a message in queue `name` stands for; nothing for news of a stage that waits."""
    told = json.loads(message.body)
    if told.get("status") == "retrying":
        return None
    return told["job_id"], _BY_LINE.get(name) or told["stage"], told["attempt"]


def on_the_way(lines: Mapping[str, Line]) -> set[Work]:
    """Return the work whose message or report lies in a queue, dead letters included."""
    found = {work_of(name, message) for name, line in lines.items() for message in line.messages}
    return {work for work in found if work is not None}

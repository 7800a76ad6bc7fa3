"""Message locations: which jobs have a task or a result in a queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tests.faults.model.fake_sqs import FakeQueue, Message, dlq_name

STAGES: Final = {"scrape": "scraping", "chunk": "chunking", "embed": "embedding"}
"""Stage by the queue of its tasks."""
_BY_QUEUE: Final = STAGES | {dlq_name(name): stage for name, stage in STAGES.items()}

WorkItem = tuple[str, str, int]
"""A job, its stage and its attempt."""


def work_item(name: str, message: Message) -> WorkItem | None:
    """Return the work item that a message in queue `name` belongs to; None for a notice of a later retry."""
    message_body = json.loads(message.body)
    if message_body.get("status") == "retrying":
        return None
    return message_body["job_id"], _BY_QUEUE.get(name) or message_body["stage"], message_body["attempt"]


def in_transit(queues: Mapping[str, FakeQueue]) -> set[WorkItem]:
    """Return the work items with a task or result in a queue, dead-letter queues included."""
    found = {work_item(name, message) for name, queue in queues.items() for message in queue.messages}
    return {work for work in found if work is not None}

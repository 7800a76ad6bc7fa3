"""Queues of the template: each stage has its own, and none loses a message early."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.function_env import functions, template, variables
from tests.support.roles import named

FOURTEEN_DAYS_S = 14 * 24 * 3600
"""The longest that SQS keeps a message."""
CONSUMERS = {
    "ScrapeQueue": ("ScraperWorker", "ScrapeConcurrency"),
    "ChunkQueue": ("ChunkingWorker", "ChunkConcurrency"),
    "EmbedQueue": ("EmbeddingWorker", "EmbedConcurrency"),
    "CallbacksQueue": ("OrchestratorResults", "CallbackConcurrency"),
}
"""Function that takes a queue's messages, and the parameter that bounds how many of it run at once."""


def queues() -> dict[str, dict[str, Any]]:
    """Return each queue's properties by logical id."""
    resources = template()["Resources"]
    return {name: each["Properties"] for name, each in resources.items() if each["Type"] == "AWS::SQS::Queue"}


def mappings() -> list[tuple[str, str, Any]]:
    """Return queue, function and MaximumConcurrency of each event source mapping."""
    return [
        (
            named(event["Properties"]["Queue"]),
            function,
            event["Properties"]["ScalingConfig"]["MaximumConcurrency"],
        )
        for function, found in functions().items()
        for event in found.get("Events", {}).values()
        if event["Type"] == "SQS"
    ]


@pytest.mark.shows("R028")
def test_each_stage_has_a_queue_a_dead_letter_queue_and_a_concurrency_of_its_own() -> None:
    work = {name: each for name, each in queues().items() if "RedrivePolicy" in each}
    dead = {name: named(each["RedrivePolicy"]["deadLetterTargetArn"]) for name, each in work.items()}
    assert sorted(dead.values()) == sorted(queues().keys() - work.keys())
    assert sorted(mappings(), key=str) == sorted(
        [
            *((queue, function, {"Ref": most}) for queue, (function, most) in CONSUMERS.items()),
            *((dead[queue], "OrchestratorDeadLetters", 2) for queue in CONSUMERS),
        ],
        key=str,
    )


@pytest.mark.shows("R029")
def test_every_queue_keeps_its_messages_for_fourteen_days() -> None:
    kept = {name: each["MessageRetentionPeriod"] for name, each in queues().items()}
    assert len(kept) == 2 * len(CONSUMERS)
    assert set(kept.values()) == {FOURTEEN_DAYS_S}


@pytest.mark.shows("R018")
@pytest.mark.parametrize("function", ["ChunkingApi", "ChunkingWorker"])
def test_chunking_has_no_way_to_a_database(function: str) -> None:
    assert "VpcConfig" not in functions()[function]
    assert not [name for name in variables(function) if "DATABASE" in name or "SECRET" in name]

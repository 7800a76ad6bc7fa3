"""Sample events match the functions' contracts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from indexmill.contracts.identity import key_hash
from indexmill.contracts.job import SubmitRequest
from indexmill.contracts.messages import ChunkTask, EmbedTask, ScrapeTask, StageResult, read
from local.cli.choices import function_names
from local.cli.samples import NAMES, SAMPLES, SampleContext, sample

CONTEXT = SampleContext(page="http://127.0.0.1:1/index.html", api_key="dev-1")


def body(name: str) -> str:
    (record,) = sample(name, CONTEXT)["Records"]
    assert record["eventSource"] == "aws:sqs"
    return str(record["body"])


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("sqs-scrape", ScrapeTask),
        ("sqs-chunk", ChunkTask),
        ("sqs-embed", EmbedTask),
        ("sqs-callbacks", StageResult),
    ],
)
def test_a_queues_message_can_be_read(name: str, model: type[BaseModel]) -> None:
    assert isinstance(read(model, body(name)), model)


def test_messages_are_for_the_stack_that_runs() -> None:
    assert read(ScrapeTask, body("sqs-scrape")).url == CONTEXT.page
    task = read(EmbedTask, body("sqs-embed"))
    assert task.target.caller_id == key_hash("dev-1")
    assert task.chunks is not None
    assert len(task.chunks) == task.chunk_count


def test_the_gateways_request_can_be_read() -> None:
    event = sample("api", CONTEXT)
    assert SubmitRequest.model_validate_json(event["body"]).url == CONTEXT.page
    assert event["requestContext"]["authorizer"]["caller_id"] == key_hash("dev-1")
    assert sample("authorizer", CONTEXT)["headers"]["X-API-Key"] == "dev-1"


def test_the_minutes_tick_looks_like_one() -> None:
    assert sample("schedule", CONTEXT)["detail-type"] == "Scheduled Event"


@pytest.mark.parametrize("name", NAMES)
def test_each_is_json_for_a_function_of_the_template(name: str) -> None:
    event: Any = json.loads(json.dumps(sample(name, SampleContext())))
    assert isinstance(event, dict)
    assert SAMPLES[name].function in function_names("")

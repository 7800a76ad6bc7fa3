"""Contract between AWS's runtime client and the host, where only one side could break it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.compute.harness import Lab, answer, call

HANDLER = """
import os

def handler(event, context):
    if event == "not a number":
        return {"score": float("nan")}
    concurrency = os.environ.get("AWS_LAMBDA_MAX_CONCURRENCY")
    return {"type": type(event).__name__, "event": event, "concurrency": concurrency}
"""


@pytest.mark.parametrize(
    "event", [None, True, 0, 1.5, "text", "ä\u2028\U0001f600", [], [1, {"a": None}], {}, {"": "", "ß": [[]]}]
)
async def test_an_event_of_any_json_arrives_as_its_python_value(forking: Lab, event: Any) -> None:
    host = await forking.start(forking.function(HANDLER))
    found = await answer(host, event)
    assert found["event"] == event
    assert found["type"] == type(event).__name__


async def test_one_process_has_one_invocation_at_a_time(forking: Lab) -> None:
    host = await forking.start(forking.function(HANDLER))
    assert (await answer(host, {}))["concurrency"] is None


async def test_a_result_that_is_no_number_goes_through_as_the_runtime_writes_it(forking: Lab) -> None:
    host = await forking.start(forking.function(HANDLER))
    found = await call(host, "not a number")
    assert found.function_error is None
    assert found.payload == b'{"score": NaN}'


async def test_a_large_event_and_a_large_answer_arrive_whole(forking: Lab) -> None:
    host = await forking.start(forking.function("def handler(event, context):\n    return event\n"))
    text = "ö" * 900_000
    found = await call(host, {"text": text})
    assert found.function_error is None
    assert json.loads(found.payload)["text"] == text

"""Examples of stack/openapi.yaml: every operation has them, and they are what the schemas allow."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from indexmill.client.stream import StreamReader
from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.job import Job
from indexmill.orchestrator.store.texts import progress, retryable, user_message
from tests.support.openapi import document


@cache
def closed_components() -> dict[str, Any]:
    """Return the components with no properties beyond those that are named, unless a schema allows them."""
    components = copy.deepcopy(document()["components"])
    for schema in components["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return components


def broken(schema: dict[str, Any], value: Any) -> list[str]:
    whole = {**schema, "components": closed_components()}
    return [f"{each.json_path}: {each.message}" for each in Draft202012Validator(whole).iter_errors(value)]


def contents() -> Iterator[Any]:
    """Yield each request and each 2xx answer that has a body, with the place where it is described."""
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            parts = {"request": operation.get("requestBody", {})}
            parts |= {status: each for status, each in operation["responses"].items() if status[0] == "2"}
            for part, described in parts.items():
                for media_type, content in described.get("content", {}).items():
                    name = f"{method.upper()} {path} {part}"
                    yield pytest.param(media_type, content, id=name)


def jobs(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every job inside an example."""
    if isinstance(value, dict):
        if "user_message" in value:
            yield value
        for each in value.values():
            yield from jobs(each)
    elif isinstance(value, list):
        for each in value:
            yield from jobs(each)


@pytest.mark.parametrize(("media_type", "content"), [*contents()])
def test_each_body_has_an_example_that_its_schema_allows(media_type: str, content: dict[str, Any]) -> None:
    example = content["example"]
    if media_type == "text/event-stream":
        (data,) = StreamReader().read(example)
        example, content = json.loads(data), {"schema": {"$ref": "#/components/schemas/Job"}}
    assert broken(content["schema"], example) == []
    for each in jobs(example):
        job = Job.model_validate(each)
        assert job.user_message == user_message(job.status, job.error)
        assert job.progress == progress(job.status, job.failed_stage)
        assert job.retryable == retryable(job.status, job.error)


def test_each_parameter_in_a_path_has_an_example() -> None:
    found = [
        (path, each["name"], broken(each["schema"], each.get("example")))
        for path, methods in document()["paths"].items()
        for operation in methods.values()
        for each in operation.get("parameters", ())
        if each["in"] == "path"
    ]
    assert len(found) > 8
    assert [each for each in found if each[2]] == []


def test_the_example_of_an_error_has_a_code_of_the_list() -> None:
    schema = document()["components"]["schemas"]["ErrorEnvelope"]
    (example,) = schema["examples"]
    assert broken({"$ref": "#/components/schemas/ErrorEnvelope"}, example) == []
    assert example["error"]["code"] in set(ErrorCode)


def test_a_field_that_is_not_there_is_noticed() -> None:
    assert broken({"$ref": "#/components/schemas/StageCompleteResponse"}, {"status": "done", "more": 1})

"""While a deployment is under way old code meets new messages, and new code old ones: both are read.

`messages/before.json` is how the release before wrote its messages and what it made of those it got. It is
written again with each release: `WRITE_MESSAGES=1 .venv/bin/python -m pytest tests/contract -k old_and_new`.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from indexmill.contracts import messages
from indexmill.contracts.messages import (
    EmbedResult,
    EmbedTask,
    Message,
    NewerSchema,
    StageResult,
    UnreadableMessage,
    family,
    read,
    write,
)
from tests.support.messages import samples
from tests.support.repository import ROOT

BEFORE = ROOT / "tests" / "contract" / "messages" / "before.json"
SAMPLES = samples()
MODELS = sorted({type(each) for each in SAMPLES.values()}, key=lambda model: model.__name__)


named = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)


@cache
def before() -> dict[str, Any]:
    if os.environ.get("WRITE_MESSAGES"):
        document = {
            "messages": [
                {"model": type(each).__name__, "body": json.loads(write(each))} for each in SAMPLES.values()
            ],
            "schemas": {model.__name__: model.model_json_schema(by_alias=True) for model in MODELS},
        }
        BEFORE.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    found: dict[str, Any] = json.loads(BEFORE.read_text(encoding="utf-8"))
    return found


def rewritten(model: type[BaseModel], body: str) -> dict[str, Any]:
    """Return what this code understands of a body, as it would write it."""
    kept: dict[str, Any] = json.loads(write(model.model_validate_json(body)))
    return kept


@pytest.mark.fault("F69")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_new_code_understands_all_that_old_code_wrote(model: type[BaseModel]) -> None:
    bodies = [each["body"] for each in before()["messages"] if each["model"] == model.__name__]
    assert bodies
    for body in bodies:
        assert _within(body, rewritten(model, json.dumps(body)))
        if issubclass(model, StageResult):
            assert isinstance(read(StageResult, json.dumps(body)), model)


@pytest.mark.fault("F69")
@named
def test_old_code_takes_all_that_new_code_writes(sample: BaseModel) -> None:
    schema = _schema_of_before(type(sample).__name__)
    problems = [
        error.message for error in Draft202012Validator(schema).iter_errors(json.loads(write(sample)))
    ]
    erased = isinstance(sample, EmbedResult) and sample.erased is not None
    if erased or (isinstance(sample, EmbedTask) and sample.msg_version > 1):
        # It refuses a later version, and leaves it to later code.
        assert problems
    else:
        assert problems == []


def _schema_of_before(name: str) -> dict[str, Any]:
    """Return how old code reads a message, or what is part of one."""
    schemas: dict[str, Any] = before()["schemas"]
    if name in schemas:
        found: dict[str, Any] = schemas[name]
        return found
    shared = {key: each for schema in schemas.values() for key, each in schema.get("$defs", {}).items()}
    return {**shared[name], "$defs": shared}


@pytest.mark.fault("F69")
@named
def test_what_later_code_adds_is_ignored_and_nothing_else_changes(sample: BaseModel) -> None:
    body = json.loads(write(sample))
    assert rewritten(type(sample), json.dumps(_with_additions(body))) == body


@pytest.mark.fault("F18", "F69")
@pytest.mark.parametrize("model", [each for each in MODELS if issubclass(each, Message)])
def test_only_a_later_version_is_kept_for_later_code(model: type[Message]) -> None:
    name, own = family(model), max(get_args(model.model_fields["msg_version"].annotation))
    sample = next(json.loads(write(each)) for each in SAMPLES.values() if type(each) is model)
    for later in ({"schema": f"{name}.v{own + 1}"}, {**sample, "msg_version": own + 1}):
        with pytest.raises(NewerSchema):
            read(model, json.dumps(later))
    for other in (f"{name}.v0", f"{name}.vnext", name, "of.somebody-else.v2"):
        with pytest.raises(UnreadableMessage):
            read(model, json.dumps({"schema": other}))


def test_every_message_says_its_version_twice_alike() -> None:
    for sample in SAMPLES.values():
        if isinstance(sample, Message):
            body = json.loads(write(sample))
            assert body["schema"] == f"{family(type(sample))}.v{body['msg_version']}"


def test_the_samples_set_every_field() -> None:
    written: dict[str, set[str]] = {}
    for sample in SAMPLES.values():
        _note(sample, written)
    fields = {
        model.__name__: set(model.model_fields)
        for model in vars(messages).values()
        if isinstance(model, type) and issubclass(model, BaseModel) and model.__name__ in written
    }
    assert {each: names - written[each] for each, names in fields.items() if names - written[each]} == {}
    assert len(fields) > 10


def _note(value: Any, written: dict[str, set[str]]) -> None:
    if isinstance(value, BaseModel):
        for field in type(value).model_fields:
            inner = getattr(value, field)
            if inner is not None:
                written.setdefault(type(value).__name__, set()).add(field)
                _note(inner, written)
    for each in value if isinstance(value, list) else ():
        _note(each, written)


def _within(part: Any, whole: Any) -> bool:
    """Return whether `whole` contains all fields of `part`, with equal values."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and _within(part[key], whole[key]) for key in part
        )
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) == len(whole) and all(map(_within, part, whole))
    return bool(part == whole)


def _with_additions(value: Any) -> Any:
    if isinstance(value, dict):
        # Chunk settings are also part of a request, and a request is refused for unknown fields. Names of
        # metadata are a caller's own.
        more = {} if {"overlap_tokens", "team"} & value.keys() else {"later": {"code": ["knows", 1]}}
        return {**{key: _with_additions(each) for key, each in value.items()}, **more}
    if isinstance(value, list):
        return [_with_additions(each) for each in value]
    return value

"""Messages about a wrong field: sentences of ours, for every field of every endpoint."""

from __future__ import annotations

import asyncio
import json
import sys
import types
import typing
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from indexmill.contracts.errors import ErrorCode
from indexmill.orchestrator.http.api import action_routes, routes
from indexmill.platform.http.app import create_app, lambda_handler, sentence
from indexmill.platform.http.guard import read_json
from indexmill.platform.observability import Observability
from tests.support.events import FakeContext, api_event, caller_claims
from tools.openapi import routers

WRONG: list[Any] = [
    *(None, True, -1, 0, 0.5, 10**12, 10**30, float("inf"), "", " ", "x", "\x01", "ü" * 5_000, "9" * 3),
    *([], [None], [""], ["x"] * 20_000, [[]], {}, {"x": 1}, {"nothing": None}),
]
OURS = {each.value for each in ErrorCode}


@pytest.fixture(autouse=True)
def _event_loop() -> Iterator[None]:
    """Give the main thread a loop, as Lambda's has."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def bodies() -> dict[str, type[BaseModel]]:
    """Return the models of the bodies that the API takes, by name."""
    fields = (getattr(route, "body_field", None) for router in routers() for route in router.routes)
    kinds = [each.field_info.annotation for each in fields if each is not None]
    found = {model.__name__: model for kind in kinds for model in models(kind)}
    assert len(found) > 8
    return found


def models(kind: Any) -> Iterator[type[BaseModel]]:
    """Yield the models within an annotation."""
    if isinstance(kind, type) and not isinstance(kind, types.GenericAlias) and issubclass(kind, BaseModel):
        yield kind
        for field in kind.model_fields.values():
            yield from models(field.annotation)
    for part in typing.get_args(kind):
        yield from models(part)


@pytest.mark.parametrize("name", sorted(bodies()))
def test_every_wrong_field_of_every_body_gets_a_sentence_of_ours(name: str) -> None:
    model = bodies()[name]
    told: dict[str, str] = {}
    whole = [*WRONG, dict.fromkeys(model.model_fields, "")]
    for wrong in [*whole, *({field: each} for field in model.model_fields for each in WRONG)]:
        told |= {kind: text for kind, text in problems(model, wrong) if kind not in OURS}
    assert told
    for kind, text in told.items():
        assert text.endswith(".") or kind == "string_pattern_mismatch", (kind, text)
        # Nothing of a caller's own is in it.
        assert "ü" not in text
        assert text[0].isupper() or text.startswith(("max_age", "crawl", "overlap_tokens")), (kind, text)
        for word in ("Input", "Value", "should", "permitted", "{", "None"):
            assert word not in text or kind == "string_pattern_mismatch", (kind, text)


def test_every_wrong_parameter_of_a_query_gets_a_sentence_of_ours() -> None:
    fields = [field for router in routers() for route in router.routes for field in parameters(route)]
    assert len(fields) > 8
    told: dict[tuple[str, str], str] = {}
    for field in fields:
        for wrong in ("", "x", "-1", "1.5", "9" * 30, "\u00fc" * 5_000, "2026-02-30"):
            _, errors = field.validate(wrong, {}, loc=("query",))
            told |= {(field.name, each["type"]): sentence(each) for each in errors or []}
    assert told
    for where, text in told.items():
        assert text.endswith(".") or where[1] == "string_pattern_mismatch", (where, text)
        assert "Input" not in text, (where, text)


def parameters(route: Any) -> list[Any]:
    """Return the fields of the query that a route takes, those of what it depends on too."""
    waiting, found = [route.dependant], []
    while waiting:
        dependant = waiting.pop()
        found += dependant.query_params
        waiting += dependant.dependencies
    return found


def problems(model: type[BaseModel], value: Any) -> list[tuple[str, str]]:
    """Return type and sentence of what is wrong with `value`."""
    try:
        TypeAdapter(model).validate_python(value)
    except ValidationError as error:
        return [(each["type"], sentence(each)) for each in error.errors()]
    return []


@cache
def handler() -> Any:
    nothing: Any = SimpleNamespace(record_alias=lambda *_: None)
    observability = Observability("test", level="CRITICAL")
    app = create_app([routes(nothing), action_routes(nothing)], observability)
    return lambda_handler(app, observability)


def refused(method: str, path: str, **event: Any) -> dict[str, Any]:
    reply = handler()(api_event(method, path, caller=caller_claims(), **event), FakeContext())
    assert reply["statusCode"] in (400, 422), reply
    error: dict[str, Any] = json.loads(reply["body"])["error"]
    return error


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "body: Send exactly one of url, urls and content."),
        ({"urls": []}, "body.urls: This must not be empty."),
        ({"url": "http://a.example/", "spam": 1}, "body.spam: There is no such field."),
        ({"content": {"name": "x" * 256, "text": "a"}}, "body.content.name: Send at most 255 characters."),
        ({"url": "http://a.example/", "priority": 101}, "body.priority: Send a number of at most 100."),
        ({"url": "http://a.example/", "job_type": "x"}, "body.job_type: Send 'index' or 'delete'."),
        ({"url": "http://a.example/", "force": "yes"}, "body.force: Send true or false."),
        ({"url": 7}, "body.url: Send a string."),
    ],
)
def test_a_submit_is_refused_in_plain_words(body: dict[str, Any], message: str) -> None:
    error = refused("POST", "/orchestrator/jobs", body=body)
    assert (error["code"], error["message"]) == ("validation_error", message)


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        ("2026-03-01T12:00:00 02:00", "Send the + of the offset as %2B: in a query it is a space."),
        ("2026-03-01 12:00:00.5 0530", "Send the + of the offset as %2B: in a query it is a space."),
        ("1700000000", "Send a moment in ISO 8601, as 2026-03-01T12:00:00Z."),
        ("2026-03-01T25:00:00Z", "Send a moment in ISO 8601, as 2026-03-01T12:00:00Z."),
        ("2026-03-01Tnoon", "Send a moment in ISO 8601, as 2026-03-01T12:00:00Z."),
        ("2026-02-30", "Send a moment in ISO 8601, as 2026-03-01T12:00:00Z."),
    ],
)
def test_a_wrong_moment_says_how_one_is_written(moment: str, message: str) -> None:
    error = refused("GET", "/orchestrator/jobs", query={"created_after": moment})
    assert (error["message"], error["field"]) == (f"query.created_after: {message}", "query.created_after")


TRAILING_COMMA = (
    ("illegal trailing comma before end of object", 1, 8)
    if sys.version_info >= (3, 13)
    else ("expecting property name enclosed in double quotes", 1, 9)
)
"""Lambda's Python names it."""


@pytest.mark.parametrize(
    ("text", "reason", "line", "column"),
    [
        ('{"a": 1,\n "b": {"c": "}", "c": 2}}', "the key c is there twice", 2, 18),
        ('{"a": "a", "\\u0061": 1}', "the key a is there twice", 1, 12),
        ('{"ö ö": 1, "ö ö": 2}', "the key ? is there twice", 1, 12),
        ('[{"a": 1}, {"a": 2}, {"a": "NaN", "b": NaN}]', "NaN is no number of JSON", 1, 40),
        ('{"a":\n\n-Infinity}', "-Infinity is no number of JSON", 3, 1),
        ('{"a": "\\"1e999", "b": 1e999}', "the number is too large or has over 400 characters", 1, 23),
        ('{"b": [1, -' + "9" * 400 + "]}", "the number is too large or has over 400 characters", 1, 11),
        ('{"a": 1, b: 2}', "expecting property name enclosed in double quotes", 1, 10),
        ('{"a": 1,}', *TRAILING_COMMA),
        ('{"a": "b\n"}', "invalid control character", 1, 9),
        ('{"a": 1} x', "extra data", 1, 10),
        ('{"a', "unterminated string starting", 1, 2),
        ("{'a': 1}", "expecting property name enclosed in double quotes", 1, 2),
    ],
)
def test_broken_json_says_why_and_where(text: str, reason: str, line: int, column: int) -> None:
    with pytest.raises(Exception, match="The body is not valid JSON") as caught:
        read_json(text.encode())
    assert str(caught.value) == f"The body is not valid JSON: {reason} (line {line}, column {column})."


def test_json_that_is_nested_too_deeply_is_named() -> None:
    with pytest.raises(Exception, match="it is nested too deeply"):
        read_json(b"[" * 100_000)


@pytest.mark.parametrize("raw", [None, ""])
def test_a_replay_takes_no_body_and_other_endpoints_miss_theirs(raw: str | None) -> None:
    asked: list[Any] = []

    def replay(_ctx: object, job_id: str, body: Any, _request_id: str) -> None:
        asked.append((job_id, body.source, body.budget))
        raise RuntimeError

    api: Any = SimpleNamespace(replays=SimpleNamespace(replay=replay), record_alias=lambda *_: None)
    observability = Observability("test", level="CRITICAL")
    handle = lambda_handler(create_app([action_routes(api)], observability), observability)
    event = api_event("POST", "/orchestrator/jobs/j1/replay", caller=caller_claims(), raw=raw, headers={})
    event["headers"].pop("Content-Type", None)
    handle(event, FakeContext())
    assert asked == [("j1", None, None)]
    event = api_event("POST", "/orchestrator/jobs/retry", caller=caller_claims(), raw=raw)
    assert handle(event, FakeContext())["statusCode"] in (400, 415)

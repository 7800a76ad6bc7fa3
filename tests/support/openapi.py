"""Check of answers against stack/openapi.yaml."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import httpx
import yaml
from jsonschema import Draft202012Validator

from tests.support.repository import ROOT


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    text = (ROOT / "stack" / "openapi.yaml").read_text(encoding="utf-8")
    # The parser in C: the other takes a second.
    loaded: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return loaded


@cache
def error_codes() -> frozenset[str]:
    """Return every code that the document lists."""
    error = document()["components"]["schemas"]["ErrorEnvelope"]["properties"]["error"]
    return frozenset(
        re.findall(r"[a-z]+(?:_[a-z]+)*", error["properties"]["code"]["description"].split(":")[1])
    )


def problems(path: str, answer: httpx.Response) -> list[str]:
    """Return what is wrong with an answer to `path`, a path of the document; empty when nothing is."""
    operation = document()["paths"][path][answer.request.method.lower()]
    promised = operation["responses"].get(str(answer.status_code))
    if promised is None:
        return [f"{answer.status_code} is not among {sorted(operation['responses'])}"]
    schema = promised["content"]["application/json"]["schema"]
    return broken(schema, answer.json())


def broken(schema: dict[str, Any], value: Any) -> list[str]:
    """Return where `value` breaks `schema`, which may refer to the document's components."""
    whole = {**schema, "components": document()["components"]}
    errors = Draft202012Validator(whole).iter_errors(value)
    return [f"{error.json_path}: {error.message}" for error in errors]

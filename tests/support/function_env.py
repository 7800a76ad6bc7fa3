"""The template's functions as tests see them: their properties and the variables they are given."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from local.backends.model_files import tokenizer_path
from local.template.source import parsed

ROOT = Path(__file__).resolve().parents[2]
GIVEN = {"MembershipUrl": "https://membership.invalid", "EmbeddingBaseUrl": "https://embeddings.invalid/v1"}
"""Values of the parameters that have no default."""
_PLACEHOLDERS = {
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    "STREAM_TOKEN_KEY": "a key for tests, of thirty-two bytes",
}


@cache
def template() -> dict[str, Any]:
    """Return template.yaml with its short intrinsics as their long forms; read-only, it is parsed once."""
    found: dict[str, Any] = parsed((ROOT / "template.yaml").read_text(encoding="utf-8"))
    return found


def functions() -> dict[str, dict[str, Any]]:
    """Return each function's properties by logical id."""
    resources = template()["Resources"]
    kind = "AWS::Serverless::Function"
    return {name: found["Properties"] for name, found in resources.items() if found["Type"] == kind}


def variables(logical_id: str) -> dict[str, Any]:
    """Return the variables that the template sets for one function, the global ones included."""
    shared = template()["Globals"]["Function"]["Environment"]["Variables"]
    return {**shared, **functions()[logical_id]["Environment"]["Variables"]}


def environment(logical_id: str) -> dict[str, str]:
    """Return a complete environment: parameters' defaults, and placeholders for what is only there on AWS."""
    parameters = template()["Parameters"]
    found = dict(_PLACEHOLDERS)
    for name, given in variables(logical_id).items():
        value = given
        while isinstance(value, dict) and "Fn::If" in value:
            # No condition of a variable holds with the defaults.
            value = value["Fn::If"][2]
        if isinstance(value, dict):
            parameter = parameters.get(value.get("Ref", ""), {})
            found[name] = str(parameter.get("Default", f"https://nowhere.invalid/{name.lower()}"))
        else:
            found[name] = str(value)
    if "TOKENIZER_FILE" in found:
        found["TOKENIZER_FILE"] = str(tokenizer_path())
    return found

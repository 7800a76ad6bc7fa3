"""docs/glossary.md: every name in its tables is one that the code has."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.repository import ROOT

PLACES = ("layers/indexmill/python", "clients/python", "functions", "sql", "local")


def rows() -> list[tuple[str, list[str]]]:
    """Return each term with the names in its last column."""
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    cells = [line.strip("|").split(" | ") for line in lines if line.startswith("| ") and "| Term" not in line]
    return [(row[0].strip(), re.findall(r"`([^`]+)`", row[-1])) for row in cells]


def identifiers(source: str) -> set[str]:
    """Return the names that a module defines, uses or has as a string; not those in prose."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        parts = (getattr(node, field, None) for field in ("id", "attr", "name", "arg", "value"))
        found |= {part for part in parts if isinstance(part, str) and part.isidentifier()}
    return found


@pytest.fixture(scope="module")
def words() -> set[str]:
    """Return every identifier of Python code, SQL and template."""
    found: set[str] = set()
    for path in (path for place in PLACES for path in (ROOT / place).rglob("*")):
        if path.suffix == ".py":
            found |= identifiers(path.read_text(encoding="utf-8"))
        elif path.suffix == ".sql":
            found |= set(re.findall(r"\w+", re.sub(r"--.*", "", path.read_text(encoding="utf-8"))))
    template = (ROOT / "template.yaml").read_text(encoding="utf-8")
    return found | set(re.findall(r"\w+", re.sub(r"#.*", "", template)))


def missing(name: str, words: set[str]) -> bool:
    if "/" in name:
        return not any((ROOT / root / name).exists() for root in (".", *PLACES, f"{PLACES[0]}/indexmill"))
    return not set(name.split(".")) <= words


def test_every_name_of_the_glossary_is_in_the_code(words: set[str]) -> None:
    assert [(term, name) for term, names in rows() for name in names if missing(name, words)] == []


def test_the_glossary_has_forty_terms_and_names_for_them() -> None:
    assert len(rows()) >= 40
    assert [term for term, names in rows() if not names] == ["at-least-once"]


def test_a_name_that_the_code_lacks_is_found(words: set[str]) -> None:
    assert missing("CallRelay", words)
    assert missing("orchestrator/desk.py", words)
    assert not missing("orchestrator/actions/", words)

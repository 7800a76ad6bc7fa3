"""Statements are read from .sql files by name, with what they include."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexmill.platform.postgres.database import load


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text, encoding="utf-8")
    return folder


def test_statements_of_all_files_are_found_by_name_without_comments(tmp_path: Path) -> None:
    one = "-- Why.\n-- name: first\nSELECT 1\n  -- inside\nFROM t;\n\n-- Why.\n-- name: second\nSELECT 2\n"
    found = load(written(tmp_path, a=one, b="-- name: third\nSELECT '--x'"))
    assert found == {"first": "SELECT 1\nFROM t", "second": "SELECT 2", "third": "SELECT '--x'"}


def test_fragments_and_constants_are_included_and_are_no_statements(tmp_path: Path) -> None:
    statement = "-- name: q\nSELECT {{columns}} LIMIT {{most}}\n"
    fragments = "-- fragment: columns\nid, {{more}}\n-- fragment: more\nurl\n"
    assert load(written(tmp_path, a=statement, b=fragments), {"most": 7}) == {"q": "SELECT id, url LIMIT 7"}


def test_a_name_that_is_used_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"b\.sql: q is defined twice"):
        load(written(tmp_path, a="-- name: q\nSELECT 1\n", b="-- fragment: q\n1\n"))


def test_an_unknown_include_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="columns"):
        load(written(tmp_path, a="-- name: q\nSELECT {{columns}}\n"))

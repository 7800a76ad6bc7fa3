"""Prose in field terms: idioms of tools/idioms.txt are counted per area and may only become fewer."""

from __future__ import annotations

import re

import pytest

from tools.prose import AREAS, Count, Idioms, Passage, count, markdown_passages, python_passages, sql_passages

# Idioms, and docstrings that begin with a wh-clause. Lower a number with the change that removes them. Those
# of `layers` are published in the OpenAPI document, so they stay.
CEILINGS = {
    "layers": (10, 12),
    "clients": (0, 0),
    "functions": (0, 0),
    "sql": (0, 0),
    "local": (0, 0),
    "stack": (0, 0),
    "tools": (0, 0),
    "tests": (0, 0),
    "docs": (0, 0),
    "examples": (0, 0),
    "root": (0, 0),
}


@pytest.fixture(scope="module")
def counts() -> dict[str, Count]:
    return count()


@pytest.mark.parametrize("area", AREAS)
def test_idioms_become_fewer(area: str, counts: dict[str, Count]) -> None:
    found = counts[area]
    idioms, wh_clauses = CEILINGS[area]
    assert len(found.places) <= idioms, "\n".join(map(str, found.places))
    assert len(found.wh_clauses) <= wh_clauses, found.wh_clauses


def test_the_list_is_long_enough_and_each_entry_names_a_replacement() -> None:
    idioms = Idioms.read().idioms
    assert len(idioms) >= 60
    assert all(each.instead and re.compile(each.pattern) for each in idioms)
    assert len({each.pattern for each in idioms}) == len(idioms)


def words(text: str) -> list[str]:
    """Return the idioms of a passage."""
    return [found for _, found, _ in Idioms.read().find(Passage(1, text))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Nobody asks whoever is at work.", ["nobody", "whoever", "at work"]),
        ("It goes on\nwith the rest when the queue is away.", ["goes on with", "is away"]),
        ("Say whether the job stands where it stood.", ["say whether", "stands", "stood"]),
    ],
)
def test_idioms_are_found(text: str, found: list[str]) -> None:
    assert words(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "The stand-in listens on a free port; a network of its own.",
        "A dead letter and all dead letters of the queue: letters of a word, the letters that SQS takes.",
        "Take the lock, hold the connection, hand the message to the queue; it is on and works.",
        "Return `nobody` and ``somebody's`` as code.",
        "The worker is notified at once. A stale lease expires; the backlog is in flight.",
    ],
)
def test_field_terms_and_code_are_no_idioms(text: str) -> None:
    assert words(text) == []


def test_docstrings_and_comments_are_read_with_their_lines() -> None:
    source = '"""One.\n\nTwo.\n"""\nX = 1\n"""Three."""\n# Four\n# five\n\n\nY = "six"  # Seven\n'
    assert sorted((each.line, each.text) for each in python_passages(source)) == [
        (1, "One.\n\nTwo.\n"),
        (6, "Three."),
        (7, " Four\n five"),
        (11, " Seven"),
    ]


def test_sql_comments_and_markdown_without_its_code_are_read() -> None:
    assert [
        (each.line, each.text) for each in sql_passages("-- One\n-- two\nSELECT 1; -- three\n\n-- four\n")
    ] == [
        (1, " One\n two\n three"),
        (5, " four"),
    ]
    [page] = markdown_passages("One\n```sh\ntwo\n```\nthree\n")
    assert page.text.split() == ["One", "three"]

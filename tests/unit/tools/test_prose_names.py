"""Idioms in names, and docstrings that begin with a wh-clause, are found by tools.prose."""

from __future__ import annotations

import ast

import pytest

from tools.prose import Idioms, names, wh_clauses

IDIOMS = Idioms.read()


def found(source: str) -> list[str]:
    """Return the idioms in the names of `source`."""
    return [words for each in names(ast.parse(source)) for _, words, _ in IDIOMS.find(each)]


@pytest.mark.parametrize(
    ("source", "idioms"),
    [
        ("def test_nobody_is_told(): ...", ["nobody", "told"]),
        ("async def what_is_AT_work(): ...", ["at work"]),
        ("class NobodyWaits: ...", ["nobody"]),
        ("class A:\n    def _news(self): ...", ["news"]),
        ("def outer():\n    def goes_on(): ...", ["goes on"]),
        ("if True:\n    class HTTPStory: ...", ["story"]),
        ("def where_it_stands(): ...", ["where it stands"]),
        ("def it_stands_in_line(): ...", ["stands"]),
    ],
)
def test_idioms_in_names_are_found(source: str, idioms: list[str]) -> None:
    assert found(source) == idioms


@pytest.mark.parametrize(
    "source",
    [
        "def stand_in(): ...",
        "class StandIns: ...",
        "def test_stand_ins_are_not_charged(): ...",
        "def newsletter(): ...",
        "def backlog(told): news = told",
    ],
)
def test_field_terms_and_variables_are_no_idioms(source: str) -> None:
    assert found(source) == []


def test_the_place_of_a_name_is_its_line() -> None:
    (name,) = names(ast.parse("X = 1\n\ndef go_on(): ..."))
    assert (name.line, name.text) == (3, "go on")


def test_wh_clauses_of_modules_classes_and_functions_are_found() -> None:
    source = '''"""What it is."""
class A:
    """Whether."""
    b: int
    """Whether it is b; an attribute may be described so."""
    def c(self):
        """How to."""
async def d():
    """Who asks."""
def e():
    """Return what is left."""
class F:
    g = "What"
'''
    assert list(wh_clauses(ast.parse(source))) == [1, 3, 7, 9]

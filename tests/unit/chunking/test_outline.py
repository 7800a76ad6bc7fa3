from __future__ import annotations

import pytest

from indexmill.chunking.split import outline


def titles(text: str) -> list[tuple[int, str, tuple[str, ...]]]:
    return [(heading.level, heading.title, heading.above) for heading in outline(text).headings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# One\n## Two\n### Three\n## Four", [
            (1, "One", ()), (2, "Two", ("One",)), (3, "Three", ("One", "Two")), (2, "Four", ("One",)),
        ]),
        ("### Deep\n# Top", [(3, "Deep", ()), (1, "Top", ())]),
        ("# Closed ##  \n", [(1, "Closed", ())]),
        ("# C#\n", [(1, "C#", ())]),
        ("   ## Indented", [(2, "Indented", ())]),
        ("    # code", []),
        ("#hashtag\n####### seven", []),
        ("#\ntext", [(1, "", ())]),
        ("Title\n=====\ntext\n\nSub\n---\n", [(1, "Title", ()), (2, "Sub", ("Title",))]),
        ("text\n\n---\n\nmore", []),
        ("| a |\n---\n", []),
        ("# One\r\n\r\ntext\r\n", [(1, "One", ())]),
        ("```\n# no heading\n```\n# Heading", [(1, "Heading", ())]),
        ("~~~\n```\n# no\n~~~\n# Yes", [(1, "Yes", ())]),
        ("````\n```\n# no\n````\n# Yes", [(1, "Yes", ())]),
    ],
)  # fmt: skip
def test_headings_are_found_with_those_above_them(
    text: str, expected: list[tuple[int, str, tuple[str, ...]]]
) -> None:
    assert titles(text) == expected


def test_a_path_holds_the_headings_above_and_not_the_one_that_begins_there() -> None:
    text = "intro\n# One\nbody\n## Two\ntail"
    read = outline(text)

    assert read.path(0) == ()
    assert read.path(text.index("# One")) == ()
    assert read.path(text.index("body")) == ("One",)
    assert read.path(text.index("## Two")) == ("One",)
    assert read.path(text.index("tail")) == ("One", "Two")


def test_code_and_tables_are_wholes_and_a_cut_inside_is_noticed() -> None:
    text = "a\n\n```\nx\n\ny\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend"
    read = outline(text)

    assert [text[start:end] for start, end in read.wholes] == [
        "```\nx\n\ny\n```",
        "| a | b |\n|---|---|\n| 1 | 2 |",
    ]
    assert read.whole_around(text.index("y")) == read.wholes[0]
    assert read.whole_around(read.wholes[0][0]) is None
    assert read.whole_around(read.wholes[0][1]) is None
    assert text.index("y") not in read.blocks
    assert text.index("end") in read.blocks


def test_a_table_that_begins_the_text_and_one_after_code_are_separate() -> None:
    text = "| a |\n| b |\n```\nx\n```\n| c |"

    assert [text[start:end] for start, end in outline(text).wholes] == [
        "| a |\n| b |",
        "```\nx\n```",
        "| c |",
    ]


def test_list_items_begin_at_their_marker() -> None:
    text = "- one\n  * two\n1. three\n10) four\n-no\n1.5 no"

    assert [text[at:].partition("\n")[0].strip() for at in outline(text).items] == [
        "- one", "* two", "1. three", "10) four",
    ]  # fmt: skip

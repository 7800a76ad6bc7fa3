"""An edit of a text moves the boundaries near it: most chunks are those of before."""

from __future__ import annotations

import random
from statistics import mean, median

import pytest

from indexmill.chunking.split import outline
from indexmill.chunking.worker import split
from indexmill.contracts.content import Chunk, ChunkSettings
from tests.support.chunks import model_tokenizer
from tests.support.edited_texts import edited, handbook, inserted

SETTINGS = ChunkSettings()
EDITS = 60


def chunks_of(text: str) -> list[Chunk]:
    return split(text, "Handbook", SETTINGS, model_tokenizer())


def changed(before: list[Chunk], after: list[Chunk]) -> int:
    known = {chunk.embedded_text for chunk in before}
    return sum(chunk.embedded_text not in known for chunk in after)


@pytest.mark.shows("X2")
@pytest.mark.parametrize("kind", ["paragraphs", "prose", "lines", "list", "words", "code"])
def test_inserted_words_change_the_chunks_near_them(kind: str) -> None:
    rng = random.Random(41)
    text = handbook(rng, kind, sections=4)
    before = chunks_of(text)
    counts = sorted(changed(before, chunks_of(edited(rng, text))) for _ in range(EDITS))

    assert mean(counts) <= 3.0
    assert median(counts) <= 3
    assert counts[int(0.95 * EDITS)] <= 7
    assert counts[-1] <= len(before) // 3


@pytest.mark.parametrize("kind", ["paragraphs", "prose", "lines", "list", "words", "code"])
def test_chunks_are_well_filled(kind: str) -> None:
    text = handbook(random.Random(43), kind, sections=10)
    chunks = chunks_of(text)
    starts = [heading.start for heading in outline(text).headings]
    ends = {len(text[:start].rstrip()) for start in [*starts, len(text)]}

    assert mean(chunk.tokens for chunk in chunks if chunk.end not in ends) >= 0.8 * SETTINGS.max_tokens


def test_text_after_a_deleted_part_has_the_chunks_of_before() -> None:
    rng = random.Random(47)
    text = handbook(rng, "paragraphs", sections=6)
    before = chunks_of(text)
    third = text.index("## Part 2")
    after = chunks_of(text[:third] + text[text.index("## Part 3") :])

    assert changed(before, after) <= 2


def test_code_lines_and_tables_are_whole_after_any_edit() -> None:
    rng = random.Random(53)
    table = "\n".join(["| name | meaning |", "|---|---|", *(f"| row {at} | word {at} |" for at in range(10))])
    for _ in range(20):
        text = "## A\n\n" + inserted(rng, 80) + "\n\n" + table + "\n\n" + handbook(rng, "code", sections=1)
        chunks = chunks_of(text)
        assert any(table in chunk.text for chunk in chunks)
        lines = set(text.split("\n"))
        inside = text.index("```")
        for chunk in chunks:
            if chunk.start > inside:
                assert {chunk.text.split("\n")[0], chunk.text.split("\n")[-1]} <= lines

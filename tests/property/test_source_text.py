"""The chunks of a text and what is kept beside them are the text again, whatever the text."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from indexmill.chunking.worker import split
from indexmill.contracts.content import Chunk, ChunkSettings, SourceText
from tests.twins.tokenizer import WordTokenizer

PARTS = st.sampled_from(
    [
        "# A\n\n",
        "word ",
        "two words. ",
        "\n\n\n\n",
        "   \n",
        "\t",
        "| a | b |\n",
        "```\ncode\n```\n",
        "é🦉 ",
        "- item\n",
    ]
)
TEXTS = st.lists(PARTS, min_size=1, max_size=200).map("".join).filter(lambda text: not text.isspace())


def pieces(chunks: list[Chunk]) -> list[tuple[int | None, int | None, str]]:
    return [(chunk.start, chunk.end, chunk.text) for chunk in chunks]


@given(TEXTS, st.sampled_from([0, 8, 32]))
def test_chunks_and_rest_are_the_text(text: str, overlap: int) -> None:
    settings = ChunkSettings(max_tokens=64, overlap_tokens=overlap)
    chunks = split(text, "T", settings, WordTokenizer())
    source = SourceText.of(text, chunks)
    assert source is not None
    assert source.whole(pieces(chunks)) == text
    assert (source.length, source.sha256) == (len(text), hashlib.sha256(text.encode()).hexdigest())
    assert source.rest.isspace() or not source.rest


@given(TEXTS, st.integers(0, 3))
def test_a_chunk_that_says_more_than_its_part_is_not_taken_for_it(text: str, at: int) -> None:
    """As one that repeats the head of its table, or one that its caller edited, without offsets."""
    chunks = split(text, "T", ChunkSettings(max_tokens=64), WordTokenizer())
    at = min(at, len(chunks) - 1)
    chunks[at] = chunks[at].model_copy(update={"text": f"head\n{chunks[at].text}"})
    source = SourceText.of(text, chunks)
    assert source is not None
    assert source.whole(pieces(chunks)) == text
    without = [
        (None, None, "edited") if number == at else piece for number, piece in enumerate(pieces(chunks))
    ]
    assert source.whole(without) == text


@given(TEXTS)
def test_other_chunks_give_no_text(text: str) -> None:
    chunks = split(text, "T", ChunkSettings(max_tokens=64), WordTokenizer())
    source = SourceText.of(text, chunks)
    assert source is not None
    wrong = [(start, end, other.swapcase()) for start, end, other in pieces(chunks)]
    if wrong != pieces(chunks):
        assert source.whole(wrong) is None
    assert source.whole([]) in (None, text)
    shifted = [chunk.model_copy(update={"text": chunk.text[::-1]}) for chunk in chunks]
    if shifted != chunks:
        assert SourceText.of(text, shifted) is None

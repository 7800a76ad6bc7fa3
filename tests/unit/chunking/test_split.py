from __future__ import annotations

import time
from itertools import pairwise

import pytest

from indexmill.chunking.worker import MAX_CHUNKS, split
from indexmill.contracts.content import Chunk, ChunkSettings
from indexmill.contracts.errors import PermanentError
from tests.support.chunks import MARKDOWN, assert_sound, model_tokenizer
from tests.twins.tokenizer import WordTokenizer

WORDS = WordTokenizer()
SMALL = ChunkSettings(max_tokens=64, overlap_tokens=12)


def words(text: str, settings: ChunkSettings = SMALL, title: str | None = None) -> list[Chunk]:
    chunks = split(text, title, settings, WORDS)
    assert_sound(chunks, text, settings, WORDS)
    return chunks


def sentences(count: int, length: int = 8) -> str:
    return " ".join(f"Sentence {at} " + "word " * (length - 3) + "end." for at in range(count))


def test_a_short_text_is_one_chunk_with_the_title_as_context() -> None:
    [chunk] = words("Hello there.", title="  My \n title ")

    assert (chunk.text, chunk.context, chunk.start, chunk.end) == ("Hello there.", "My title", 0, 12)
    assert chunk.tokens == WORDS.count("My title\n\nHello there.")


def test_sections_begin_chunks_and_their_headings_become_context() -> None:
    chunks = words(MARKDOWN, title="Handbook")

    assert [(chunk.context, chunk.text.partition("\n")[0]) for chunk in chunks] == [
        ("Handbook", "# Handbook"),
        ("Handbook", "## Travel"),
        ("Handbook", "## Data"),
    ]


def test_a_title_equal_to_the_first_heading_appears_once() -> None:
    chunks = words("# Guide\n\n" + sentences(20), title="Guide")

    assert {chunk.context for chunk in chunks[1:]} == {"Guide"}


def test_paragraphs_are_kept_whole_where_they_fit() -> None:
    paragraphs = [f"Paragraph {at}. " + "word " * 30 + "end." for at in range(6)]
    chunks = words("\n\n".join(paragraphs), ChunkSettings(max_tokens=80, overlap_tokens=0))

    assert [chunk.text for chunk in chunks] == [
        "\n\n".join(paragraphs[0:2]),
        "\n\n".join(paragraphs[2:4]),
        "\n\n".join(paragraphs[4:6]),
    ]


def test_a_long_paragraph_is_cut_between_sentences_and_overlaps_in_whole_ones() -> None:
    settings = ChunkSettings(max_tokens=64, overlap_tokens=12)
    chunks = words(sentences(200), settings)

    overlapping = 0
    for one, other in pairwise(chunks):
        assert one.text.endswith("end.")
        assert other.text.startswith("Sentence")
        if other.start < one.end:
            overlapping += 1
        else:
            # What a full chunk has no room for is left out.
            assert other.tokens + WORDS.count("Sentence 100 word word word word word end.") > 62
    assert overlapping > len(chunks) // 2


def test_without_overlap_no_text_is_repeated() -> None:
    chunks = words(sentences(40), ChunkSettings(max_tokens=64, overlap_tokens=0))

    assert len(chunks) > 4
    assert all(one.end <= other.start for one, other in pairwise(chunks))


def test_list_items_are_not_cut() -> None:
    text = "\n".join(f"- item {at} " + "word " * 10 for at in range(30))
    chunks = words(text, ChunkSettings(max_tokens=64, overlap_tokens=0))

    assert len(chunks) > 4
    assert all(chunk.text.startswith("- item") for chunk in chunks)


@pytest.mark.parametrize(
    "whole",
    ["```\n" + "line = call(a)\n\n" * 6 + "```", "| a | b |\n|---|---|\n" + "| one | two |\n" * 6],
    ids=["code", "table"],
)
def test_code_and_tables_that_fit_are_kept_together(whole: str) -> None:
    text = sentences(3) + "\n\n" + whole.rstrip() + "\n\n" + sentences(6)

    assert any(whole.rstrip() in chunk.text for chunk in words(text))


def test_code_that_does_not_fit_is_cut_between_lines() -> None:
    text = "```\n" + "\n".join(f"value_{at} = compute(first, second)" for at in range(60)) + "\n```"
    chunks = words(text)

    assert len(chunks) > 3
    assert all(chunk.text.split("\n")[-1].endswith((")", "```")) for chunk in chunks)
    assert all(chunk.text.startswith(("value_", "```")) for chunk in chunks)


def test_a_heading_is_never_left_without_its_text() -> None:
    text = "\n\n".join(f"## Part {at}\n\n" + sentences(5) for at in range(8))

    chunks = words(text)
    assert len(chunks) > 3
    assert not any(chunk.text.split("\n")[-1].startswith("## ") for chunk in chunks)


def test_a_new_section_does_not_repeat_the_end_of_the_one_before() -> None:
    text = "# One\n\n" + sentences(9) + "\n\n# Two\n\n" + sentences(9)
    chunks = words(text)

    assert [chunk.start for chunk in chunks if chunk.text.startswith("# Two")] == [text.index("# Two")]
    rest = [chunk.context for chunk in chunks if chunk.start > text.index("# Two")]
    assert rest
    assert set(rest) == {"Two"}


def test_deep_and_long_headings_leave_room_for_text() -> None:
    text = "".join(f"{'#' * level} {'heading ' * 12}{level}\n\n" for level in range(1, 7)) + sentences(30)
    chunks = words(text, title="title " * 200)

    assert all(WORDS.count(chunk.context) <= SMALL.max_tokens // 4 for chunk in chunks)
    assert chunks[-1].context


@pytest.mark.parametrize("text", ["", " ", "\n\n\t \u3000", "\r\n" * 50])
def test_a_blank_text_is_empty_content(text: str) -> None:
    with pytest.raises(PermanentError) as caught:
        split(text, None, SMALL, WORDS)
    assert caught.value.code == "empty_content"


@pytest.mark.parametrize(
    "text", ["word. " * 700_000, ("word " * 39 + "end.\n\n") * 15_000], ids=["by tokens", "by paragraphs"]
)
def test_more_than_ten_thousand_chunks_are_refused(text: str) -> None:
    with pytest.raises(PermanentError) as caught:
        split(text, None, SMALL, WORDS)
    assert caught.value.code == "too_many_chunks"
    assert f"{MAX_CHUNKS:,}" in caught.value.message


@pytest.mark.shows("B83")
@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("a" * 1_000_000, MAX_CHUNKS),
        ("a" + "\n" * 1_000_000 + "b", 2),
        (" " * 1_000_000 + "a", 1),
        ("#" + " " * 1_000_000 + "x\ntext", 2),
        ("=" * 1_000_000, MAX_CHUNKS),
        ("```\n" * 100_000, MAX_CHUNKS),
        ("| a |\n" * 100_000, MAX_CHUNKS),
        ("日本語。" * 50_000, MAX_CHUNKS),
    ],
    ids=["one word", "newlines", "blanks", "blank title", "underline", "fences", "rows", "no blanks"],
)
def test_monstrous_texts_end_soon(text: str, most: int) -> None:
    begun = time.process_time()
    chunks = split(text, None, ChunkSettings(), model_tokenizer())

    assert 1 <= len(chunks) <= most
    assert time.process_time() - begun < 8


def test_signs_of_several_tokens_are_not_torn() -> None:
    text = "😀" * 400
    settings = ChunkSettings(max_tokens=64, overlap_tokens=8)
    chunks = split(text, None, settings, model_tokenizer())

    assert_sound(chunks, text, settings, model_tokenizer())


def test_cuts_fall_between_tokens() -> None:
    settings = ChunkSettings(max_tokens=64, overlap_tokens=16)
    text = "Incomprehensibilities antidisestablishmentarianism " * 60
    ends = {0, *model_tokenizer().marks(text).ends}
    chunks = split(text, None, settings, model_tokenizer())
    assert len(chunks) > 4
    for chunk in chunks:
        assert {chunk.start, chunk.start - 1} & ends
        assert chunk.end in ends


@pytest.mark.parametrize("text", ["\\<b\\[x" * 400, "\\[" * 900, "a \\< b \\\\\\[c" * 300])
def test_no_chunk_divides_a_backslash_from_the_character_that_it_escapes(text: str) -> None:
    settings = ChunkSettings(max_tokens=64, overlap_tokens=12)
    chunks = split(text, None, settings, model_tokenizer())
    assert len(chunks) > 5
    assert_sound(chunks, text, settings, model_tokenizer())
    for at in {edge for chunk in chunks for edge in (chunk.start, chunk.end)} - {0, len(text)}:
        before = text[:at]
        assert (len(before) - len(before.rstrip("\\"))) % 2 == 0, text[at - 4 : at + 4]

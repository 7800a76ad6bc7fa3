from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexmill.chunking.ports import Tokenizer
from indexmill.chunking.worker import split
from indexmill.contracts.content import ChunkSettings
from tests.support.chunks import assert_sound, model_tokenizer, whole_text_tokenizer
from tests.twins.tokenizer import WordTokenizer

PIECES = st.sampled_from(
    [
        "word", "Antidisestablishment", "end. ", "Next", " ", "  ", "\n", "\n\n", "\r\n", "\t",
        "# ", "## A\n", "- item ", "1. ", "```\n", "~~~", "| a | b |\n", "|---|---|\n", "===\n", "---\n",
        "日本語。", "😀", "é", "</s>", "\u2581", "\u3000",
        "https://host.example/a/long/path?with=query&and=more ", "x" * 90, "? ", "…", '"', "\x1c", "\u200b",
    ]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(PIECES, min_size=1, max_size=250).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=400),
).filter(lambda text: not text.isspace())
SETTINGS = st.builds(
    ChunkSettings, max_tokens=st.integers(64, 140), overlap_tokens=st.sampled_from([0, 5, 16, 31, 200])
)
TITLES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=120)


def check(text: str, title: str | None, wanted: ChunkSettings, tokenizer: Tokenizer) -> None:
    chunks = split(text, title, wanted, tokenizer)

    assert_sound(chunks, text, wanted, tokenizer)
    assert split(text, title, wanted, tokenizer) == chunks


@pytest.mark.shows("R018")
@given(TEXTS, TITLES, SETTINGS)
@settings(max_examples=150, deadline=None)
def test_every_split_by_words_is_sound(text: str, title: str | None, wanted: ChunkSettings) -> None:
    check(text, title, wanted, WordTokenizer())


@given(TEXTS, TITLES, SETTINGS)
@settings(max_examples=150, deadline=None)
def test_every_split_by_the_models_tokens_is_sound(
    text: str, title: str | None, wanted: ChunkSettings
) -> None:
    check(text, title, wanted, model_tokenizer())


def test_every_split_by_a_whole_text_tokenizer_is_sound(tmp_path: Path) -> None:
    tokenizer = whole_text_tokenizer(tmp_path)

    @given(TEXTS, TITLES, SETTINGS)
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def sound(text: str, title: str | None, wanted: ChunkSettings) -> None:
        check(text, title, wanted, tokenizer)

    sound()

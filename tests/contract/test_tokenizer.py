"""One suite for every tokenizer: the twin, and the model's in both of its ways."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from indexmill.chunking.adapters.model_tokenizer import ModelTokenizer, words_are_independent
from indexmill.chunking.ports import Tokenizer
from local.backends.model_files import tokenizer_path
from tests.support.chunks import MARKDOWN, model_tokenizer, whole_text_tokenizer
from tests.twins.tokenizer import WordTokenizer

TEXTS = [
    "a",
    " a",
    "a ",
    "\n",
    " ",
    MARKDOWN,
    "日本語 é 😀",
    "x" * 9_000,
    "\n\n\na  b",
    "</s> <s>",
    "\u2581a \u2581",
]
WORDS = ["a", "Foo", " ", "  ", "\n", "é", "日本", "😀", "</s>", "\u2581", "\t", "x" * 50, "\r\n", ".", "ﬁ"]


@pytest.fixture(scope="module", params=["twin", "by word", "whole text", "wordpiece"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    made = {
        "twin": WordTokenizer,
        "by word": lambda: ModelTokenizer(tokenizer_path()),
        "whole text": lambda: whole_text_tokenizer(folder),
        "wordpiece": lambda: ModelTokenizer(wordpiece_file(folder)),
    }
    return made[request.param]()


def wordpiece_file(folder: Path) -> Path:
    signs = ["[UNK]", *"abcdefghijklmnopqrstuvwxyz", "##s", "the", "##book", "hand"]
    config = {
        "version": "1.0",
        "truncation": {"max_length": 4, "stride": 0, "strategy": "LongestFirst", "direction": "Right"},
        "padding": {
            "strategy": {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[UNK]",
        },
        "added_tokens": [],
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": None, "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {sign: at for at, sign in enumerate(signs)},
        },
    }  # fmt: skip
    file = folder / "wordpiece.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return file


@pytest.mark.parametrize("text", TEXTS)
def test_marks_ascend_to_the_end_of_the_text(tokenizer: Tokenizer, text: str) -> None:
    marks = tokenizer.marks(text)

    assert list(marks.ends) == sorted(set(marks.ends))
    assert marks.ends[-1] == len(text)
    assert list(marks.tokens) == sorted(marks.tokens)
    assert len(marks.ends) == len(marks.tokens)


@pytest.mark.parametrize("text", [text for text in TEXTS if len(text) < 9_000])
def test_the_last_mark_has_the_texts_count(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.marks(text).tokens[-1] == tokenizer.count(text)


def test_an_empty_text_has_no_tokens_and_no_marks(tokenizer: Tokenizer) -> None:
    assert tokenizer.count("") == 0
    assert list(tokenizer.marks("").ends) == []


def test_a_lone_surrogate_is_an_encode_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(UnicodeEncodeError):
        tokenizer.marks("a \ud800 b")
    with pytest.raises(UnicodeEncodeError):
        tokenizer.count("a \ud800 b")


def test_neither_truncation_nor_padding_of_the_file_has_an_effect(tmp_path: Path) -> None:
    tokenizer = ModelTokenizer(wordpiece_file(tmp_path))

    assert tokenizer.count("the handbook the handbooks") == 1 + 2 + 1 + 3


@cache
def library() -> Library:
    plain = Library.from_file(str(tokenizer_path()))
    plain.encode_special_tokens = True
    return plain


@given(st.lists(st.sampled_from(WORDS), max_size=40).map("".join))
@settings(max_examples=300, deadline=None)
def test_counting_by_word_gives_exactly_the_models_own_number(text: str) -> None:
    assert model_tokenizer().count(text) == len(library().encode(text, add_special_tokens=False).ids)


def test_a_full_memory_is_emptied_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexmill.chunking.adapters.model_tokenizer._REMEMBERED_WORDS", 10)
    tokenizer = ModelTokenizer(tokenizer_path())

    assert [tokenizer.count(MARKDOWN) for _ in range(3)] == [model_tokenizer().count(MARKDOWN)] * 3
    assert tokenizer.count("fresh words here") == model_tokenizer().count("fresh words here")


@pytest.mark.parametrize(
    ("change", "independent"),
    [
        ({}, True),
        ({"pre_tokenizer": {"type": "ByteLevel"}}, False),
        ({"normalizer": None}, False),
        ({"model": {"type": "BPE", "vocab": {"a": 0, "a\u2581b": 1}}}, False),
        ({"model": {"type": "BPE", "vocab": {"a\n": 0}}}, False),
        ({"model": {"type": "Unigram", "vocab": []}}, False),
        ({"model": {"type": "WordPiece", "vocab": {}}, "pre_tokenizer": {"type": "BertPreTokenizer"}}, True),
        ({"model": {"type": "WordPiece", "vocab": {}}, "pre_tokenizer": None}, False),
    ],
)
def test_words_are_only_taken_as_independent_where_the_file_shows_it(
    change: dict[str, object], independent: bool
) -> None:
    config = {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend"}, {"type": "Replace"}]},
        "pre_tokenizer": None,
        "model": {"type": "BPE", "vocab": {"\u2581\u2581": 0, "\u2581a": 1}},
    }
    assert words_are_independent({**config, **change}) is independent

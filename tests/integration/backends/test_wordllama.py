from __future__ import annotations

import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from local.backends.model_files import DIMENSIONS, tokenizer_path, weights_path
from local.backends.wordllama_model import WordLlamaModel, normalised
from local.site.catalogue import PAGES_DIR

MODEL = WordLlamaModel.from_wheel()
OWN = Tokenizer.from_file(str(tokenizer_path()))
OWN.no_padding()
OWN.no_truncation()

PIECES = ["a", "the", "Bücher", "日本語", " ", "  ", "\n", "\t", "▁", "<s>", "</s>", "<unk>", "<", ">"]
PIECES += ["\u00a0", "\u3000", "e\u0301", "👩‍🚀", "\0", "1984", "don't", "...", "\r\n", "s>"]
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
)


@cache
def whole_table() -> NDArray[np.float64]:
    return load_file(weights_path())["embedding.weight"].astype(np.float64)


def own_ids(text: str) -> list[int]:
    return list(OWN.encode(text, add_special_tokens=False).ids)


@settings(max_examples=200, deadline=None, database=None)
@given(st.lists(TEXT, min_size=1, max_size=4))
def test_tokens_are_the_tokenizers_own(texts: list[str]) -> None:
    assert [ids.tolist() for ids in MODEL.tokenize(texts)] == [own_ids(text) for text in texts]


@pytest.mark.parametrize(
    "text", ["", " ", "  ", "a ", " a", "a  b", "\n", "▁", "<s>a b</s>", " <unk> ", "a\u00a0b"]
)
def test_tokens_at_the_edges_are_the_tokenizers_own(text: str) -> None:
    for _ in range(2):  # first seen, then cached
        assert MODEL.tokenize([text])[0].tolist() == own_ids(text)


def test_whole_pages_are_the_tokenizers_own() -> None:
    pages = [path.read_text() for path in sorted(PAGES_DIR.rglob("*.html"))]
    assert len(pages) > 10
    assert [ids.tolist() for ids in MODEL.tokenize(pages)] == [own_ids(page) for page in pages]


def test_more_words_than_are_remembered_stay_right() -> None:
    model = WordLlamaModel.from_wheel()
    words = [f"word{n} " for n in range(25_000)]
    for start in range(0, len(words), 5_000):
        model.tokenize(["".join(words[start : start + 5_000])])
    sample = "".join(words[:50]) + " "
    assert model.tokenize([sample])[0].tolist() == own_ids(sample)


@settings(max_examples=30, deadline=None, database=None)
@given(st.lists(TEXT, min_size=1, max_size=5))
def test_a_vector_is_the_mean_of_the_tables_rows_at_length_one(texts: list[str]) -> None:
    table = whole_table()
    vectors = MODEL.embed(MODEL.tokenize(texts))
    for vector, text in zip(vectors, texts, strict=True):
        mean = table[own_ids(text) or [0]].mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


@settings(max_examples=30, deadline=None, database=None)
@given(st.lists(TEXT, min_size=2, max_size=6))
def test_a_texts_vector_does_not_depend_on_its_company(texts: list[str]) -> None:
    together = MODEL.embed(MODEL.tokenize(texts))
    backwards = MODEL.embed(MODEL.tokenize(texts[::-1]))[::-1]
    alone = np.concatenate([MODEL.embed(MODEL.tokenize([text])) for text in texts])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(together, backwards)


def test_the_model_has_the_tables_shape() -> None:
    assert (MODEL.vocabulary, MODEL.dimensions) == (OWN.get_vocab_size(), DIMENSIONS)
    assert MODEL.embed(MODEL.tokenize(["a"])).dtype == np.float32


def test_related_texts_are_nearer_than_others() -> None:
    boat, ship, tax = MODEL.embed(MODEL.tokenize(["a small boat", "a large ship", "income tax law"]))
    assert boat @ ship > boat @ tax


def test_a_row_of_zeros_stays_one() -> None:
    assert normalised(np.zeros((1, 4), np.float32)).tolist() == [[0.0] * 4]


def test_neither_the_package_nor_a_hub_is_asked() -> None:
    source = (
        "import sys; from local.backends.wordllama_model import WordLlamaModel as M; M.from_wheel();"
        "print([m for m in sys.modules if m.split('.')[0] in {'wordllama', 'huggingface_hub', 'requests'}])"
    )
    root = str(PAGES_DIR.parents[2])
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout.strip() == "[]"

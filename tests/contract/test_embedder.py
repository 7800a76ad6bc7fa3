"""One suite for every embedder: the twin, and the real one on the local model's endpoint."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from indexmill.embedding.adapters.openai_embedder import OpenAIEmbedder
from indexmill.embedding.ports import Embedder, Space
from indexmill.platform.aws.secrets import Secret
from local.backends.embeddings import EmbeddingEndpoint
from local.backends.model_files import DIMENSIONS, MODEL_ID
from local.backends.wordllama_model import WordLlamaModel
from tests.support.aiohttp_server import served
from tests.twins.embedder import HashEmbedder

TEXTS = ["The mill grinds grain.", "Ein Satz.", "日本語", "a", "```code```\n\nwith lines", "x" * 3_000]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with served(EmbeddingEndpoint(WordLlamaModel.from_wheel()).app()) as address:
        yield address


@pytest.fixture(params=["twin", "openai"])
def embedder(request: pytest.FixtureRequest, endpoint: str) -> Embedder:
    if request.param == "twin":
        return HashEmbedder()
    return OpenAIEmbedder(
        Space(MODEL_ID, DIMENSIONS), base_url=f"{endpoint}/v1", api_key=Secret("key"), max_batch_inputs=4
    )


def test_there_is_one_finite_vector_of_the_space_per_text(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS, timeout_s=10)

    assert len(vectors) == len(TEXTS)
    for vector in vectors:
        assert len(vector) == embedder.space.dimension
        assert all(math.isfinite(number) for number in vector)
        assert any(vector)


def test_vectors_are_in_the_order_of_the_texts_whatever_their_number(embedder: Embedder) -> None:
    forwards = embedder.embed(TEXTS, timeout_s=10)
    backwards = embedder.embed(TEXTS[::-1], timeout_s=10)

    assert [list(vector) for vector in forwards] == [list(vector) for vector in backwards][::-1]


def test_the_same_text_has_the_same_vector_and_another_has_another(embedder: Embedder) -> None:
    one, other, again = embedder.embed([TEXTS[0], TEXTS[1], TEXTS[0]], timeout_s=10)

    assert list(one) == list(again)
    assert list(one) != list(other)


def test_no_texts_have_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([], timeout_s=10) == []

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import pytest

from local.backends.embedding_request import MAX_INPUTS, MAX_TOKENS_PER_INPUT
from local.backends.model_files import DIMENSIONS, MODEL_ID
from local.backends.wordllama_model import WordLlamaModel

Embed = Callable[..., Awaitable[httpx.Response]]
TEXTS = ["A lending library for telescopes.", "", "Das Boot bringt Bücher.", "wheat paste"]
GIVEN = [text for text in TEXTS if text]


@pytest.fixture(scope="module")
def model() -> WordLlamaModel:
    return WordLlamaModel.from_wheel()


def floats(answer: httpx.Response) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([item["embedding"] for item in answer.json()["data"]])


def error(answer: httpx.Response) -> tuple[int, str | None, str | None]:
    body = answer.json()["error"]
    assert body.keys() == {"message", "type", "param", "code"}
    assert body["message"]
    return answer.status_code, body["param"], body["code"]


async def test_the_answer_is_openais(embed: Embed, model: WordLlamaModel) -> None:
    answer = await embed(GIVEN)
    assert answer.status_code == 200
    body = answer.json()
    tokens = sum(len(ids) for ids in model.tokenize(GIVEN))
    assert {name: value for name, value in body.items() if name != "data"} == {
        "object": "list",
        "model": MODEL_ID,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    assert [(item["object"], item["index"]) for item in body["data"]] == [
        ("embedding", index) for index in range(len(GIVEN))
    ]


async def test_vectors_are_the_models_in_order_and_of_length_one(embed: Embed, model: WordLlamaModel) -> None:
    vectors = floats(await embed(GIVEN))
    np.testing.assert_allclose(vectors, model.embed(model.tokenize(GIVEN)), atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert vectors.shape == (len(GIVEN), DIMENSIONS)


async def test_base64_and_float_are_the_same_vectors(embed: Embed) -> None:
    as_floats = floats(await embed(GIVEN, encoding_format="float"))
    items = (await embed(GIVEN, encoding_format="base64")).json()["data"]
    decoded = np.array([np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in items])
    np.testing.assert_allclose(decoded, as_floats, atol=1e-8)


async def test_a_texts_vector_does_not_depend_on_its_company(embed: Embed) -> None:
    together = floats(await embed(GIVEN))
    alone = np.concatenate([floats(await embed(text)) for text in GIVEN])
    np.testing.assert_array_equal(together, alone)


async def test_token_ids_are_as_good_as_text(embed: Embed, model: WordLlamaModel) -> None:
    ids = [one.tolist() for one in model.tokenize(GIVEN)]
    np.testing.assert_array_equal(floats(await embed(ids)), floats(await embed(GIVEN)))
    np.testing.assert_array_equal(floats(await embed(ids[0])), floats(await embed(GIVEN[0])))


async def test_fewer_dimensions_are_the_first_ones_scaled(embed: Embed) -> None:
    whole, short = floats(await embed(GIVEN)), floats(await embed(GIVEN, dimensions=64))
    first = whole[:, :64]
    np.testing.assert_allclose(short, first / np.linalg.norm(first, axis=1, keepdims=True), atol=1e-6)


async def test_the_official_client_understands_it(embeddings: httpx.AsyncClient) -> None:
    import openai  # takes a second: not in each worker of a test run

    base_url = f"{str(embeddings.base_url).rstrip('/')}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        answer = await client.embeddings.create(model=MODEL_ID, input=GIVEN)
        assert [len(item.embedding) for item in answer.data] == [DIMENSIONS] * len(GIVEN)
        assert [model.id async for model in client.models.list()] == [MODEL_ID]
        with pytest.raises(openai.NotFoundError) as missing:
            await client.embeddings.create(model="other", input=GIVEN)
        assert missing.value.code == "model_not_found"


async def test_an_unknown_model_is_404(embeddings: httpx.AsyncClient) -> None:
    for body in ({"model": "other", "input": "a"}, {"input": "a"}):
        answer = await embeddings.post("/v1/embeddings", json=body)
        assert error(answer) == (404, None, "model_not_found")


async def test_an_input_may_have_so_many_tokens_and_no_more(embed: Embed) -> None:
    assert (await embed([[5] * MAX_TOKENS_PER_INPUT])).status_code == 200
    refused = await embed(["short", "word " * (MAX_TOKENS_PER_INPUT + 10)])
    assert error(refused) == (400, "input", "context_length_exceeded")
    assert "maximum context length is 8192 tokens" in refused.json()["error"]["message"]


async def test_a_request_may_have_so_many_tokens_and_inputs(embed: Embed) -> None:
    full = [5] * MAX_TOKENS_PER_INPUT
    assert error(await embed([full] * 37)) == (400, "input", "max_tokens_per_request")
    assert len((await embed([[5]] * MAX_INPUTS, encoding_format="base64")).json()["data"]) == MAX_INPUTS
    assert error(await embed([[5]] * (MAX_INPUTS + 1))) == (400, "input", None)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (None, None),
        ([], None),
        (7, None),
        ({}, None),
        ("", "empty_input"),
        (["a", ""], "empty_input"),
        ([[]], "empty_input"),
        (["a", 7], "invalid_type"),
        (["a", [5]], "invalid_type"),
        ([[1.5]], "invalid_type"),
        ([[True]], "invalid_type"),
        ([[-1]], "invalid_value"),
        ([[10_000_000]], "invalid_value"),
        (["\ud800"], "invalid_value"),
    ],
    ids=repr,
)
async def test_an_input_that_cannot_be_embedded_is_refused(
    embed: Embed, given: object, code: str | None
) -> None:
    assert error(await embed(given)) == (400, "input", code)


@pytest.mark.parametrize("dimensions", [0, -1, DIMENSIONS + 1, "64", 1.5, True])
async def test_dimensions_are_a_number_that_the_model_has(embed: Embed, dimensions: object) -> None:
    assert error(await embed("a", dimensions=dimensions)) == (400, "dimensions", "invalid_value")


async def test_other_malformed_requests_are_refused(embed: Embed, embeddings: httpx.AsyncClient) -> None:
    assert error(await embed("a", encoding_format="int8")) == (400, "encoding_format", "invalid_value")
    for body in (b"", b"not JSON", b"[]", b"\xff"):
        assert error(await embeddings.post("/v1/embeddings", content=body)) == (400, None, None)


@pytest.mark.parametrize(
    ("mode", "status", "code"),
    [
        ("429", 429, "rate_limit_exceeded"),
        ("quota", 429, "insufficient_quota"),
        ("500", 500, "server_error"),
        ("503", 503, "overloaded"),
    ],
)
async def test_failures_on_demand_pass_after_so_many_requests(
    embeddings: httpx.AsyncClient, embed: Embed, mode: str, status: int, code: str
) -> None:
    await embeddings.post("/control", json={"mode": mode, "times": 2, "retry_after": 1.5})
    for _ in range(2):
        answer = await embed("a")
        assert error(answer) == (status, None, code)
        assert answer.headers["Retry-After"] == "1.5"
    assert (await embed("a")).status_code == 200


async def test_a_failure_without_a_count_lasts_and_says_no_time(
    embeddings: httpx.AsyncClient, embed: Embed
) -> None:
    await embeddings.post("/control", json={"mode": "503"})
    answers = [await embed("a") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [503] * 3
    assert "Retry-After" not in answers[0].headers


async def test_vectors_are_invalid_on_demand(embeddings: httpx.AsyncClient, embed: Embed) -> None:
    good = floats(await embed(GIVEN))

    async def embed_once(mode: str) -> httpx.Response:
        await embeddings.post("/control", json={"mode": mode, "times": 1})
        return await embed(GIVEN)

    assert len((await embed_once("wrong_count")).json()["data"]) == len(GIVEN) - 1
    assert floats(await embed_once("wrong_dim")).shape[1] == DIMENSIONS - 1
    assert np.isnan(floats(await embed_once("nan"))).all()
    shuffled = (await embed_once("shuffled")).json()["data"]
    assert [item["index"] for item in shuffled] == [2, 1, 0]
    np.testing.assert_array_equal(np.array([item["embedding"] for item in shuffled]), good[::-1])
    garbage = await embed_once("garbage")
    assert (garbage.status_code, garbage.headers["Content-Type"][:9]) == (200, "text/html")
    np.testing.assert_array_equal(floats(await embed(GIVEN)), good)


async def test_down_is_a_lost_connection(embeddings: httpx.AsyncClient, embed: Embed) -> None:
    await embeddings.post("/control", json={"mode": "down", "times": 1})
    with pytest.raises(httpx.TransportError):
        await embed("a")
    assert (await embed("a")).status_code == 200


async def test_a_delay_is_kept(embeddings: httpx.AsyncClient, embed: Embed) -> None:
    await embeddings.post("/control", json={"mode": "delay", "delay": 0.2, "times": 1})
    began = time.monotonic()
    assert (await embed("a")).status_code == 200
    assert time.monotonic() - began >= 0.2


async def test_control_counts_the_work_and_refuses_what_there_is_not(
    embeddings: httpx.AsyncClient, embed: Embed, model: WordLlamaModel
) -> None:
    before = (await embeddings.get("/control")).json()
    await embed(GIVEN)
    await embed([])
    after = (await embeddings.get("/control")).json()
    done = {name: after[name] - before[name] for name in ("requests", "inputs", "tokens")}
    tokens = sum(len(ids) for ids in model.tokenize(GIVEN))
    assert done == {"requests": 2, "inputs": len(GIVEN), "tokens": tokens}
    assert after["cpu_seconds"] >= before["cpu_seconds"] > 0
    bodies: list[object] = [{"mode": "sulking"}, {"mood": "ok"}, [], "ok"]
    for body in bodies:
        assert (await embeddings.post("/control", json=body)).status_code == 400
    assert (await embeddings.get("/control")).json()["mode"] == "ok"

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from indexmill.contracts.errors import IndexmillError, PermanentError, Refused, TransientError
from indexmill.embedding.adapters.openai_embedder import _HARMLESS, OpenAIEmbedder, batches
from indexmill.embedding.ports import Space
from indexmill.platform.aws.secrets import Secret
from tests.support.aiohttp_server import served
from tests.support.embedding_endpoint import Endpoint, document, good, item, packed, vector


@pytest.fixture(scope="module")
def running() -> Iterator[Endpoint]:
    import openai  # noqa: F401 - the first request would wait for it, within its time limit

    endpoint = Endpoint()
    with served(endpoint.app) as endpoint.address:
        yield endpoint


@pytest.fixture
def endpoint(running: Endpoint) -> Endpoint:
    running.answer = good
    running.requests.clear()
    running.keys.clear()
    return running


def test_a_request_asks_for_base64_and_carries_the_key(endpoint: Endpoint) -> None:
    vectors = endpoint.embedder().embed(["a", "b"], timeout_s=5)

    assert [list(found) for found in vectors] == [vector(0), vector(1)]
    assert endpoint.requests == [{"model": "m", "input": ["a", "b"], "encoding_format": "base64"}]
    assert endpoint.keys == ["Bearer secret"]


def test_many_texts_go_out_in_several_requests(endpoint: Endpoint) -> None:
    vectors = endpoint.embedder(max_batch_inputs=3).embed([str(at) for at in range(8)], timeout_s=5)

    assert [request["input"] for request in endpoint.requests] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6", "7"],
    ]
    assert len(vectors) == 8


def test_batches_are_bounded_by_characters_too_and_hold_at_least_one_text() -> None:
    assert list(batches(["aaaa", "bb", "cc", "d" * 9, "e"], 10, 6)) == [
        ["aaaa", "bb"],
        ["cc"],
        ["d" * 9],
        ["e"],
    ]


@pytest.mark.parametrize(
    "items",
    [
        [item(1, packed(vector(1))), item(0, packed(vector(0)))],
        [item(0, vector(0)), item(1, vector(1))],
    ],
    ids=["reordered", "numbers"],
)
def test_what_a_sound_server_may_do_is_understood(endpoint: Endpoint, items: list[Any]) -> None:
    endpoint.always(lambda: document(*items))

    assert [list(found) for found in endpoint.embedder().embed(["a", "b"], timeout_s=5)] == [
        vector(0),
        vector(1),
    ]


FIRST = item(0, packed(vector(0)))


@pytest.mark.shows("S14")
@pytest.mark.fault("F41", "F42")
@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([FIRST], "embedding_incomplete"),
        ([], "embedding_incomplete"),
        ([FIRST, item(1, packed(vector(1))), item(2, packed(vector(2)))], "embedding_incomplete"),
        ([FIRST, FIRST], "embedding_incomplete"),
        ([FIRST, item(2, packed(vector(1)))], "embedding_incomplete"),
        ([FIRST, item(1, packed([float("nan"), 1, 1, 1]))], "embedding_invalid"),
        ([FIRST, item(1, packed([float("inf"), 1, 1, 1]))], "embedding_invalid"),
        ([FIRST, item(1, packed([float("inf"), float("-inf"), 1, 1]))], "embedding_invalid"),
        ([FIRST, item(1, [float("nan"), 1, 1, 1])], "embedding_invalid"),
        ([FIRST, item(1, [1e300, 1, 1, 1])], "embedding_invalid"),
        ([FIRST, item(1, packed([0, 0, -0.0, 0]))], "embedding_invalid"),
        ([FIRST, item(1, packed([1, 2, 3]))], "dimension_mismatch"),
        ([FIRST, item(1, [])], "dimension_mismatch"),
        ([FIRST, item(1, "!!!!")], "embedding_bad_response"),
        ([FIRST, item(1, packed(vector(1))[:-3])], "embedding_bad_response"),
        ([FIRST, item(1, None)], "embedding_bad_response"),
        ([FIRST, item(1, ["a", 1, 2, 3])], "embedding_bad_response"),
        ([FIRST, item("1", packed(vector(1)))], "embedding_bad_response"),
        ([FIRST, "text"], "embedding_bad_response"),
    ],
)  # fmt: skip
def test_vectors_that_the_client_would_pass_on_are_noticed(
    endpoint: Endpoint, items: list[Any], code: str
) -> None:
    endpoint.always(lambda: document(*items))

    error = endpoint.error()
    assert (error.code, error.retryable) == (code, code != "dimension_mismatch")


@pytest.mark.fault("F43")
@pytest.mark.parametrize(
    "body", ["", "<html>Bad gateway</html>", "[]", "{}", '{"data": {}}', '{"data": [', "null"]
)
def test_an_answer_that_is_not_the_protocol_can_be_tried_again(endpoint: Endpoint, body: str) -> None:
    endpoint.always(lambda: web.Response(text=body, content_type="text/html"))

    error = endpoint.error()
    assert (error.code, error.retryable) == ("embedding_bad_response", True)


def test_an_endless_answer_is_cut_off(endpoint: Endpoint) -> None:
    endpoint.always(lambda: web.Response(body=b" " * 10_000_000))

    assert endpoint.error().code == "embedding_bad_response"


HTML = "<html>"


def failing(
    status: int, message: str = "no", code: str | None = None, **headers: str
) -> Callable[[], web.Response]:
    if message == HTML:
        return lambda: web.Response(status=status, text=HTML, content_type="text/html")
    body = {"error": {"message": message, "type": "t", "param": None, "code": code}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: web.json_response(body, status=status, headers=named)


@pytest.mark.fault("F46")
@pytest.mark.parametrize(
    ("status", "message", "given", "code"),
    [
        (400, "no", None, "embedding_rejected"),
        (400, "no", "context_length_exceeded", "token_limit_exceeded"),
        (400, "This model's maximum context length is 8192 tokens, however", None, "token_limit_exceeded"),
        (400, "Requested 300001 tokens, max 300000 tokens per request", None, "token_limit_exceeded"),
        (400, HTML, None, "embedding_rejected"),
        (408, "no", None, "embedding_unavailable"),
        (409, "no", None, "embedding_unavailable"),
        (413, "no", None, "embedding_rejected"),
        (
            413,
            "Input validation error: `inputs` must have less than 512 tokens",
            None,
            "token_limit_exceeded",
        ),
        (422, "no", None, "embedding_rejected"),
        (429, "no", None, "openai_rate_limit"),
        (429, "no", "insufficient_quota", "openai_rate_limit"),
        (500, "no", None, "embedding_unavailable"),
        (502, HTML, None, "embedding_unavailable"),
        (503, "no", None, "embedding_unavailable"),
    ],
)
def test_refusals_are_permanent_and_troubles_transient(
    endpoint: Endpoint, status: int, message: str, given: str | None, code: str
) -> None:
    endpoint.always(failing(status, message, given))

    error = endpoint.error()
    assert (error.code, error.retryable) == (code, code in ("embedding_unavailable", "openai_rate_limit"))
    assert len(endpoint.requests) == 1
    assert "secret" not in error.message


def of_the_cloud(status: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


def of_vllm(status: int, message: str) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}


def of_tei(status: int, message: str) -> dict[str, Any]:
    return {"error": message, "error_type": "Validation"}


@pytest.mark.shows("R063")
@pytest.mark.parametrize(
    ("path", "says"), [("/v1", of_the_cloud), ("/h100/v1", of_vllm), ("/a/b/v1/", of_tei)]
)
@pytest.mark.parametrize(
    ("status", "message", "kind", "code"),
    [
        (400, "It exceeds the maximum context length", PermanentError, "token_limit_exceeded"),
        (400, "no", PermanentError, "embedding_rejected"),
        (429, "no", TransientError, "openai_rate_limit"),
        (503, "no", TransientError, "embedding_unavailable"),
    ],
)  # fmt: skip
def test_an_error_is_the_same_from_openai_and_from_an_own_server(
    endpoint: Endpoint,
    path: str,
    says: Callable[[int, str], dict[str, Any]],
    status: int,
    message: str,
    kind: type[IndexmillError],
    code: str,
) -> None:
    endpoint.always(lambda: web.json_response(says(status, message), status=status))

    error = endpoint.error(base_url=endpoint.address + path)
    assert (type(error), error.code) == (kind, code)
    assert len(endpoint.requests) == 1


@pytest.mark.fault("F44")
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_passed_on(endpoint: Endpoint, status: int) -> None:
    endpoint.always(failing(status, Retry_After="3600"))

    assert endpoint.error().retry_after == 3600


@pytest.mark.fault("F45")
def test_a_hang_ends_with_the_time_limit(endpoint: Endpoint) -> None:
    async def hang(request: web.Request, body: dict[str, Any]) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    endpoint.answer = hang
    begun = time.monotonic()

    assert endpoint.error(timeout_s=0.3).code == "embedding_unavailable"
    assert time.monotonic() - begun < 3


def test_an_answer_that_drips_ends_with_the_time_limit(endpoint: Endpoint) -> None:
    async def drip(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    endpoint.answer = drip
    begun = time.monotonic()

    assert endpoint.error(timeout_s=0.3).code == "embedding_unavailable"
    assert time.monotonic() - begun < 3


def test_an_answer_that_breaks_off_is_a_transient_trouble(endpoint: Endpoint) -> None:
    async def torn(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"data": [')
        assert request.transport is not None
        request.transport.abort()
        return response

    endpoint.answer = torn

    assert endpoint.error().code == "embedding_unavailable"


def test_the_time_limit_is_for_all_requests_together(endpoint: Endpoint) -> None:
    async def slow(request: web.Request, body: dict[str, Any]) -> web.Response:
        await asyncio.sleep(0.2)
        return await good(request, body)

    endpoint.answer = slow

    assert endpoint.error(texts=10, timeout_s=0.5, max_batch_inputs=1).code == "embedding_unavailable"
    assert len(endpoint.requests) <= 4


def test_a_refused_connection_is_a_transient_error() -> None:
    embedder = OpenAIEmbedder(Space("m", 4), base_url="http://127.0.0.1:1/v1", api_key=Secret("k"))
    with pytest.raises(IndexmillError) as caught:
        embedder.embed(["a"], timeout_s=2)
    assert caught.value.code == "embedding_unavailable"


REFUSALS = [
    (401, "no", None),
    (401, "Token limit of your key", None),
    (403, "no", None),
    (404, "no", "model_not_found"),
    (404, HTML, None),
]


class RotatedSecret(Secret):
    """Another one when it is read again after a refusal."""

    def __init__(self, *values: str) -> None:
        super().__init__(values[0])
        self._values = list(values)

    def current(self) -> str:
        return self._values[0]

    def again(self) -> str:
        if len(self._values) > 1:
            self._values.pop(0)
        return self._values[0]


def texts_of(endpoint: Endpoint) -> list[list[str]]:
    return [request["input"] for request in endpoint.requests]


@pytest.mark.shows("R062")
@pytest.mark.parametrize(("status", "message", "code"), REFUSALS)
def test_an_endpoint_that_refuses_a_harmless_text_too_refuses_us(
    endpoint: Endpoint, status: int, message: str, code: str | None
) -> None:
    endpoint.always(failing(status, message, code))

    error = endpoint.error(texts=2)
    assert (type(error), error.code, error.retryable) == (Refused, "embedding_unavailable", True)
    assert (str(status) in error.message, "secret" in error.message) == (True, False)
    assert texts_of(endpoint) == [["t0", "t1"], [_HARMLESS]]


@pytest.mark.fault("F46")
@pytest.mark.parametrize(("status", "message", "code"), REFUSALS)
def test_a_text_that_alone_is_refused_is_the_documents_fault(
    endpoint: Endpoint, status: int, message: str, code: str | None
) -> None:
    async def picky(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if body["input"] == [_HARMLESS]:
            return await good(request, body)
        return failing(status, message, code)()

    endpoint.answer = picky

    error = endpoint.error(texts=1)
    assert (type(error), error.code) == (PermanentError, "embedding_rejected")
    assert texts_of(endpoint) == [["t0"], [_HARMLESS]]


def test_an_endpoint_that_breaks_while_it_is_asked_again_says_nothing_about_the_text(
    endpoint: Endpoint,
) -> None:
    async def breaks(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return failing(503 if body["input"] == [_HARMLESS] else 403)()

    endpoint.answer = breaks

    error = endpoint.error(texts=1)
    assert (type(error), error.code) == (TransientError, "embedding_unavailable")


@pytest.mark.parametrize("status", [401, 403, 404])
def test_the_key_is_read_again_before_anything_is_concluded(endpoint: Endpoint, status: int) -> None:
    async def by_key(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if request.headers["Authorization"] == "Bearer new":
            return await good(request, body)
        return failing(status)()

    endpoint.answer = by_key
    embedder = endpoint.embedder(api_key=RotatedSecret("old", "new"))

    assert len(embedder.embed(["a"], timeout_s=5)) == 1
    assert (texts_of(endpoint), endpoint.keys) == ([["a"]] * 2, ["Bearer old", "Bearer new"])
    assert len(embedder.embed(["a"], timeout_s=5)) == 1
    assert len(endpoint.requests) == 3


def test_a_new_key_that_is_refused_too_is_an_outage(endpoint: Endpoint) -> None:
    endpoint.always(failing(401))

    assert type(endpoint.error(texts=1, api_key=RotatedSecret("old", "new"))) is Refused
    assert endpoint.keys == ["Bearer old", "Bearer new", "Bearer new"]
    assert texts_of(endpoint)[-1] == [_HARMLESS]

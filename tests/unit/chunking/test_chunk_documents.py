from __future__ import annotations

import pytest

from indexmill.chunking.chunk import CHUNK_LIST, ChunkDocuments
from indexmill.chunking.settings import ChunkingApiSettings
from indexmill.chunking.wiring import build_api
from indexmill.contracts.content import BlobRef, ChunkSettings
from indexmill.contracts.errors import ErrorCode, PermanentError, TransientError
from indexmill.contracts.http_chunking import ChunkRequest
from indexmill.contracts.messages import ChunkCall, ChunkItem
from indexmill.testing.blobs import InMemoryBlobs
from indexmill.testing.tokenizer import WordTokenizer
from local.backends.model_files import tokenizer_path

LONG = "A sentence of six words. " * 400


class BlobsAway(InMemoryBlobs):
    def get(self, ref: BlobRef) -> bytes:
        raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "away")


def call(*items: ChunkItem, inline_limit: int = 60_000) -> ChunkCall:
    return ChunkCall(items=list(items), inline_limit=inline_limit)


def test_items_are_answered_in_order_and_one_failure_harms_no_other() -> None:
    chunk = ChunkDocuments(WordTokenizer(), InMemoryBlobs())
    missing = BlobRef(key="text/00/00", size=1, sha256="0" * 64)
    items = [ChunkItem(text="One."), ChunkItem(text="  "), ChunkItem(text_ref=missing), ChunkItem()]

    reply = chunk.call(call(*items, ChunkItem(text="Two.")))

    assert [item.failure.code if item.failure else None for item in reply.items] == [
        None, "empty_content", "content_missing", "empty_content", None,
    ]  # fmt: skip
    assert [item.chunks[0].text for item in reply.items if item.chunks] == ["One.", "Two."]
    assert [item.chunk_count for item in reply.items] == [1, 0, 0, 0, 1]


def test_text_by_reference_gives_the_same_chunks_as_inline() -> None:
    blobs = InMemoryBlobs()
    chunk = ChunkDocuments(WordTokenizer(), blobs)
    ref = blobs.put(LONG.encode(), kind="text", content_type="text/markdown")

    reply = chunk.call(call(ChunkItem(text=LONG, title="T"), ChunkItem(text_ref=ref, title="T")))

    assert reply.items[0] == reply.items[1]
    assert reply.items[0].chunks == chunk.one(LONG, "T", ChunkSettings())


@pytest.mark.fault("F26")
def test_chunks_beyond_the_inline_limit_come_by_reference() -> None:
    blobs = InMemoryBlobs()
    chunk = ChunkDocuments(WordTokenizer(), blobs)
    expected = chunk.one(LONG, None, ChunkSettings())
    size = len(CHUNK_LIST.dump_json(expected))

    [inline] = chunk.call(call(ChunkItem(text=LONG), inline_limit=size)).items
    [packed] = chunk.call(call(ChunkItem(text=LONG), inline_limit=size - 1)).items

    assert inline.chunks == expected
    assert packed.chunks is None
    assert packed.chunk_count == len(expected)
    assert packed.chunks_ref is not None
    assert packed.chunks_ref.key.startswith("chunks/")
    assert CHUNK_LIST.validate_json(blobs.get(packed.chunks_ref)) == expected


def test_storage_that_is_away_makes_the_whole_call_worth_another_try() -> None:
    ref = BlobRef(key="text/00/00", size=1, sha256="0" * 64)

    with pytest.raises(TransientError):
        ChunkDocuments(WordTokenizer(), BlobsAway()).call(
            call(ChunkItem(text="One."), ChunkItem(text_ref=ref))
        )


def test_stored_text_that_is_no_utf8_is_corrupt() -> None:
    blobs = InMemoryBlobs()
    ref = blobs.put(b"\xff\xfe", kind="text", content_type="text/markdown")

    [item] = ChunkDocuments(WordTokenizer(), blobs).call(call(ChunkItem(text_ref=ref))).items

    assert item.failure is not None
    assert item.failure.code == "content_corrupt"


def test_lone_surrogates_are_a_parse_error() -> None:
    with pytest.raises(PermanentError) as caught:
        ChunkDocuments(WordTokenizer(), InMemoryBlobs()).one("a \ud800", None, ChunkSettings())
    assert caught.value.code == "parse_error"


def test_the_wired_use_case_counts_with_the_models_file() -> None:
    settings = ChunkingApiSettings(bucket_name="b", tokenizer_file=str(tokenizer_path()))

    [chunk] = build_api(settings, blobs=InMemoryBlobs()).one("Hello handbooks", None, ChunkSettings())

    assert chunk.tokens == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 0}, {"max_tokens": -1}, {"max_tokens": 63}, {"max_tokens": 2049},
        {"max_tokens": 10**9}, {"max_tokens": "128"}, {"max_tokens": True}, {"max_tokens": 128.0},
        {"overlap_tokens": -1}, {"max_tokens": 64, "overlap_tokens": 32},
        {"max_tokens": 256, "overlap_tokens": 128}, {"unit": "tokens"},
    ],
)  # fmt: skip
def test_settings_out_of_bounds_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="settings"):
        ChunkRequest.model_validate({"text": "a", "settings": settings})


@pytest.mark.parametrize(
    "body",
    [{}, {"text": ""}, {"text": 1}, {"text": None}, {"text": "a", "more": 1}, {"text": "a", "job_id": 1}],
)
def test_requests_that_are_not_one_are_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="ChunkRequest"):
        ChunkRequest.model_validate(body)


def test_a_request_has_defaults_and_may_set_its_own() -> None:
    assert ChunkRequest.model_validate({"text": "a"}).settings.max_tokens == 256
    wanted = {"max_tokens": 64, "overlap_tokens": 31}
    assert ChunkRequest.model_validate({"text": "a", "settings": wanted}).settings.model_dump() == wanted

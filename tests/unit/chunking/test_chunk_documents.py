from __future__ import annotations

import pytest

from indexmill.chunking.worker import ChunkDocuments
from indexmill.contracts.content import CHUNK_LIST, CHUNKER, FIRST_CHUNKER, BlobRef, ChunkSettings
from indexmill.contracts.errors import IndexmillError, PermanentError
from indexmill.contracts.http_chunking import ChunkRequest
from indexmill.contracts.messages import ChunkTask, EmbedTask, read, write
from indexmill.embedding.documents import resolve
from tests.support.index_builders import target
from tests.twins.blobs import InMemoryBlobs
from tests.twins.tokenizer import WordTokenizer

LONG = "A sentence of six words. " * 400
MISSING = BlobRef(key="text/00/00", size=1, sha256="0" * 64)


def task(text: str | None = None, **more: object) -> ChunkTask:
    return ChunkTask.model_validate({"message_id": "m", "text": text, **more})


def test_text_by_reference_gives_the_same_chunks_as_inline() -> None:
    blobs = InMemoryBlobs()
    chunk = ChunkDocuments(WordTokenizer(), blobs)
    ref = blobs.put(LONG.encode(), kind="text", content_type="text/markdown")

    inline = chunk.task(task(LONG, title="T"), 10**6)

    assert inline == chunk.task(task(text_ref=ref, title="T"), 10**6)
    assert inline.chunks == chunk.one(LONG, "T", ChunkSettings())


def test_a_task_is_split_with_its_own_settings() -> None:
    chunk = ChunkDocuments(WordTokenizer(), InMemoryBlobs())
    settings = ChunkSettings(max_tokens=64, overlap_tokens=0)
    assert chunk.task(task(LONG, settings=settings), 10**6).chunks == chunk.one(LONG, None, settings)


@pytest.mark.fault("F26")
def test_chunks_beyond_the_inline_limit_come_by_reference() -> None:
    blobs = InMemoryBlobs()
    chunk = ChunkDocuments(WordTokenizer(), blobs)
    expected = chunk.one(LONG, None, ChunkSettings())
    size = len(CHUNK_LIST.dump_json(expected))

    inline = chunk.task(task(LONG), size)
    packed = chunk.task(task(LONG), size - 1)

    assert inline.chunks == expected
    assert packed.chunks is None
    assert packed.chunk_count == len(expected)
    assert packed.chunks_ref is not None
    assert packed.chunks_ref.key.startswith("chunks/")
    assert CHUNK_LIST.validate_json(blobs.get(packed.chunks_ref)) == expected


def test_the_text_between_chunks_comes_with_them_however_long() -> None:
    """As a text of many blank lines; what is too long for a message comes by reference."""
    blobs = InMemoryBlobs()
    chunk = ChunkDocuments(WordTokenizer(), blobs)
    for gap in ("\n\n", "\n" * 5_000):
        text = f"# A{gap}{LONG}{gap}# B{gap}end"
        made = chunk.task(task(text), 10**6)
        assert made.source is not None
        assert (made.source.rest_ref is None) == (len(gap) < 2_000)
        embed = EmbedTask(
            message_id="m",
            target=target(),
            generation=1,
            chunks=made.chunks,
            chunk_count=made.chunk_count,
            source=made.source,
        )
        work = resolve(0, read(EmbedTask, write(embed)), blobs)
        assert work.source is not None
        assert work.source.whole((each.start, each.end, each.text) for each in work.chunks) == text
    blobs.objects.clear()
    with pytest.raises(PermanentError) as caught:
        resolve(0, embed, blobs)
    assert caught.value.code == "content_missing"


def test_the_result_names_the_chunker_and_the_tokenizer() -> None:
    chunk = ChunkDocuments(WordTokenizer(), InMemoryBlobs())
    by_value, by_reference = (chunk.task(task(LONG), limit) for limit in (10**6, 1))
    assert by_reference.chunks_ref is not None
    assert {(made.chunker, made.tokenizer) for made in (by_value, by_reference)} == {(CHUNKER, "words")}


@pytest.mark.shows("P049")
def test_a_task_may_name_the_chunker_of_the_release_before() -> None:
    chunk = ChunkDocuments(WordTokenizer(), InMemoryBlobs())
    first, today, unknown = (
        chunk.task(task(LONG, chunker=name), 10**6) for name in (FIRST_CHUNKER, None, "9")
    )

    assert (first.chunker, today.chunker, unknown.chunker) == (FIRST_CHUNKER, CHUNKER, CHUNKER)
    # It fills one chunk after the other.
    assert len({len(each.text) for each in (first.chunks or [])[:-1]}) == 1
    assert first.chunks != today.chunks == unknown.chunks
    for each in first.chunks or []:
        assert each.text == LONG[each.start : each.end]


def test_chunks_for_a_promised_object_are_inline_however_many() -> None:
    blobs = InMemoryBlobs()
    made = ChunkDocuments(WordTokenizer(), blobs).task(task(LONG, result_key="chunks/m.json"), 1)
    assert (len(made.chunks or []), made.chunks_ref, blobs.objects) == (made.chunk_count, None, {})


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (task("  "), "empty_content"),
        (task(), "empty_content"),
        (task(text_ref=MISSING), "content_missing"),
    ],
)
def test_what_cannot_be_split_has_a_code(bad: ChunkTask, code: str) -> None:
    with pytest.raises(PermanentError) as caught:
        ChunkDocuments(WordTokenizer(), InMemoryBlobs()).task(bad, 1)
    assert caught.value.code == code


def test_stored_text_that_is_no_utf8_is_corrupt() -> None:
    blobs = InMemoryBlobs()
    ref = blobs.put(b"\xff\xfe", kind="text", content_type="text/markdown")
    with pytest.raises(IndexmillError) as caught:
        ChunkDocuments(WordTokenizer(), blobs).task(task(text_ref=ref), 1)
    assert caught.value.code == "content_corrupt"


def test_lone_surrogates_are_a_parse_error() -> None:
    with pytest.raises(PermanentError) as caught:
        ChunkDocuments(WordTokenizer(), InMemoryBlobs()).one("a \ud800", None, ChunkSettings())
    assert caught.value.code == "parse_error"


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

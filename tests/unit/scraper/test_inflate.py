"""Bodies with bounds."""

from __future__ import annotations

import gzip
import random
import tracemalloc

import pytest

from indexmill.contracts.errors import PermanentError, TransientError
from indexmill.scraper.adapters.answer import Body

TEXT = b"some text that is packed. " * 400


def collect(
    data: bytes, *, limit: int = 100_000, packed: bool = True, step: int = 777, truncate: bool = False
) -> bytes:
    body = Body(limit=limit, gzip=packed, truncate=truncate)
    for at in range(0, len(data), step):
        if not body.feed(data[at : at + step]):
            break
    return body.done()


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_a_packed_body_is_unpacked(step: int) -> None:
    assert collect(gzip.compress(TEXT), step=step) == TEXT


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_several_members_are_one_body(step: int) -> None:
    assert collect(gzip.compress(b"one") + gzip.compress(b"two"), step=step) == b"onetwo"


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_what_follows_the_last_member_is_ignored(step: int) -> None:
    assert collect(gzip.compress(TEXT) + b"\0\0\0junk", step=step) == TEXT


def test_an_empty_body_needs_no_packing() -> None:
    assert collect(b"") == b""


def test_a_body_may_be_as_long_as_the_limit() -> None:
    assert collect(TEXT, packed=False, limit=len(TEXT)) == TEXT
    assert collect(gzip.compress(TEXT), limit=len(TEXT)) == TEXT


def test_one_byte_more_is_too_large() -> None:
    noise = random.Random(1).randbytes(5000)
    for data, packed in ((noise, False), (gzip.compress(noise), True)):
        with pytest.raises(PermanentError) as caught:
            collect(data, packed=packed, limit=4999)
        assert caught.value.code == "content_too_large"


@pytest.mark.parametrize("step", [1, 777, 1_000_000])
def test_a_bomb_is_distinguished_from_a_large_page(step: int) -> None:
    with pytest.raises(PermanentError) as caught:
        collect(gzip.compress(bytes(50_000_000)), step=step)
    assert caught.value.code == "content_bomb"


def test_a_bomb_takes_no_more_memory_than_the_limit() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(PermanentError):
            collect(bomb, step=len(bomb))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_swarm_of_empty_members_is_a_bomb() -> None:
    with pytest.raises(PermanentError) as caught:
        collect(gzip.compress(b"") * 1000, step=100_000)
    assert caught.value.code == "content_bomb"


@pytest.mark.parametrize(
    "data",
    [gzip.compress(TEXT)[:-9], b"not packed at all", gzip.compress(TEXT)[:20] + b"\xff" * 50],
    ids=["cut", "not packed", "overwritten"],
)
def test_a_damaged_body_is_worth_another_try(data: bytes) -> None:
    with pytest.raises(TransientError) as caught:
        collect(data)
    assert caught.value.code == "parse_error"


@pytest.mark.parametrize("packed", [True, False])
def test_truncation_keeps_the_first_bytes(packed: bool) -> None:
    data = gzip.compress(TEXT) if packed else TEXT
    assert collect(data, packed=packed, limit=1000, truncate=True) == TEXT[:1000]

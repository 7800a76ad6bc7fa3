"""Rows in Postgres' binary COPY format: the least work for the server, and no look-ups of types.

Each function returns the bytes of its rows; `copy` wraps them and sends them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from indexmill.embedding.ports import Vector
from indexmill.platform.postgres.database import Connection

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_SMALLINT_MAX = 32_767

_CHUNK = struct.Struct(">hiiiiiqiiiiiiihi32s")
_MEMBERSHIP = struct.Struct(">hiqiqiiiiiiii")
_VECTOR = struct.Struct(">hiiiiiiihH")
_POSTING = struct.Struct(">hiiiiiiihih")


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk that is not kept yet, analyzed."""

    row_id: int
    corpus: int
    document: int
    chunk_id: bytes
    tokens: int
    counts: Mapping[int, int]
    """How often each term occurs."""
    words: int
    analyzer_version: int
    language: str
    context: str
    text: str


CHUNK_COLUMNS = (
    "id, corpus, document, tokens, words, terms, analyzer_version, chunk_id, language, context, text"
)


def chunk_row(chunk: NewChunk) -> bytes:
    """Return the row of `chunks`, columns as in CHUNK_COLUMNS."""
    head = _CHUNK.pack(
        *(11, 4, chunk.row_id, 4, chunk.corpus, 8, chunk.document, 4, chunk.tokens, 4, chunk.words),
        *(4, len(chunk.counts), 2, chunk.analyzer_version, 32, chunk.chunk_id),
    )
    return head + b"".join(map(_text, (chunk.language, chunk.context, chunk.text)))


def membership_row(document: int, generation: int, chunk: int, place: tuple[int, int, int]) -> bytes:
    """Return the row of `memberships`; `place` is ordinal, start and end."""
    ordinal, start, end = place
    return _MEMBERSHIP.pack(6, 8, document, 8, generation, 4, chunk, 4, ordinal, 4, start, 4, end)


def vector_row(corpus: int, space: int, chunk: int, vector: Vector) -> bytes:
    """Return the row of `vectors`; every number of `vector` must fit half precision."""
    size = len(vector)
    head = _VECTOR.pack(4, 4, corpus, 4, space, 4, chunk, 4 + 2 * size, size, 0)
    return head + struct.pack(f">{size}e", *vector)


def posting_rows(chunks: Iterable[NewChunk]) -> list[bytes]:
    """Return the rows of `postings`, in the order of the index: a third off what inserting them costs."""
    pack = _POSTING.pack
    rows: list[bytes] = []
    for chunk in chunks:
        corpus, row_id, words, counts = chunk.corpus, chunk.row_id, chunk.words, chunk.counts
        if words > _SMALLINT_MAX:
            words, counts = _SMALLINT_MAX, {term: min(n, _SMALLINT_MAX) for term, n in counts.items()}
        rows += [pack(5, 4, corpus, 4, term, 4, row_id, 2, count, 2, words) for term, count in counts.items()]
    rows.sort()
    return rows


def copy(connection: Connection, table: str, rows: Iterable[bytes]) -> None:
    """Append `rows` to `table`, given as its name or `name (columns)`; no rows cost nothing."""
    body = b"".join(rows)
    if not body:
        return
    statement = f"COPY {table} FROM STDIN (FORMAT binary)".encode()
    with connection.cursor().copy(statement) as sink:
        sink.write(_HEADER + body + _TRAILER)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">i", len(encoded)) + encoded

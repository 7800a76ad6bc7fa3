"""Publishing: one transaction makes a batch of document versions what search sees.

The row changes of each version are planned before anything is written. Order of locks, the same in every
writer: the documents by id, then, last and briefly, the totals of their corpora. Nothing else is shared:
chunk ids come from blocks of a sequence, document frequencies are read off the postings. Rows are sent in
Postgres' binary COPY format: the least work for the server, and no look-ups of types.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from indexmill.contracts.content import Chunk
from indexmill.embedding.adapters.pgvector.statements import SQL
from indexmill.embedding.analyzer import ANALYZER_VERSION, DEFAULT_LANGUAGE, count_terms, term_of_text
from indexmill.embedding.documents import missing_vectors, unit
from indexmill.embedding.ports import DocumentVersion, Space, Vector
from indexmill.platform.postgres.database import Connection, json_of, storable

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
        rows.append(pack(5, 4, corpus, 4, term_of_text(chunk.context, chunk.text), 4, row_id, 2, 1, 2, words))
    rows.sort()
    return rows


def copy_rows(connection: Connection, table: str, rows: Iterable[bytes]) -> None:
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


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers of corpora, by key, and of spaces."""

    corpora: dict[str, int] = field(default_factory=dict)
    spaces: dict[Space, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptChunk:
    """A chunk of the version that is published so far."""

    row_id: int
    spaces: frozenset[int]
    """Spaces in which its vector is kept."""


@dataclass(slots=True)
class Plan:
    """Row changes for one version."""

    version: DocumentVersion
    document: int
    corpus: int
    space: int
    kept: Mapping[str, KeptChunk]
    """What the document has so far, by chunk id."""
    places: list[tuple[int, tuple[int, int, int]]] = field(default_factory=list)
    """Row and (ordinal, start, end) of each chunk of the version."""
    chunks: list[NewChunk] = field(default_factory=list)
    vectors: list[tuple[int, Vector]] = field(default_factory=list)
    """By row: unit vectors to add."""

    @property
    def lacking(self) -> int:
        """Return how many row ids `fill` will use."""
        return sum(chunk_id not in self.kept for chunk_id in self.version.chunk_ids)

    @property
    def gone(self) -> list[int]:
        """Return the row ids of chunks that the version no longer has."""
        wanted = set(self.version.chunk_ids)
        return [old.row_id for chunk_id, old in self.kept.items() if chunk_id not in wanted]

    @property
    def stale_vectors(self) -> list[tuple[int, int]]:
        """Return row id and space of vectors that the version no longer uses."""
        wanted = set(self.version.chunk_ids)
        return [
            (old.row_id, space)
            for chunk_id, old in self.kept.items()
            for space in old.spaces
            if chunk_id not in wanted or space != self.space
        ]

    def fill(self, row_ids: Iterator[int]) -> None:
        """Work out what is new. Raises TransientError(embedding_incomplete) when a chunk has no vector."""
        version, missing = self.version, 0
        for chunk_id, chunk in zip(version.chunk_ids, version.chunks, strict=True):
            old = self.kept.get(chunk_id)
            row_id = old.row_id if old else next(row_ids)
            self.places.append((row_id, (chunk.ordinal, chunk.start, chunk.end)))
            if old is None:
                self.chunks.append(self._analyzed(row_id, chunk_id, chunk))
            if old is None or self.space not in old.spaces:
                vector = version.vectors.get(chunk_id)
                missing += vector is None
                if vector is not None:
                    self.vectors.append((row_id, unit(vector, version.space)))
        if missing:
            raise missing_vectors(missing)

    def _analyzed(self, row_id: int, chunk_id: str, chunk: Chunk) -> NewChunk:
        counts = count_terms(chunk.embedded_text, DEFAULT_LANGUAGE)
        return NewChunk(
            row_id=row_id,
            corpus=self.corpus,
            document=self.document,
            chunk_id=bytes.fromhex(chunk_id),
            tokens=chunk.tokens,
            counts=counts,
            words=counts.total(),
            analyzer_version=ANALYZER_VERSION,
            language=DEFAULT_LANGUAGE,
            context=storable(chunk.context),
            text=storable(chunk.text),
        )


_NOTHING = (0, 0, 0, 0, 2**31 - 1, 0)


@dataclass(slots=True)
class Totals:
    """By corpus: documents, chunks, words, bytes more (or fewer), and the lowest and highest row touched."""

    changes: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def count(self, corpus: int, sign: int, words: int, text: str, row_id: int) -> None:
        """Add a chunk of the corpus (`sign` 1), or take one off (-1)."""
        d, n, w, size, first, last = self.changes.get(corpus, _NOTHING)
        size, words = size + sign * len(text.encode()), w + sign * words
        self.changes[corpus] = d, n + sign, words, size, min(first, row_id), max(last, row_id)

    def published(self, corpus: int, documents: int) -> None:
        """Add `documents`: 1, 0 where the version before had chunks as well, or -1."""
        found, *rest = self.changes.get(corpus, _NOTHING)
        self.changes[corpus] = found + documents, *rest


@dataclass(frozen=True, slots=True)
class _Claimed:
    """A locked document."""

    document_id: str
    id: int
    published: int | None
    min_generation: int
    indexed_at: datetime | None

    def admits(self, generation: int) -> bool:
        """Return whether `generation` is newer than the published one and not fenced."""
        return (self.published is None or self.published < generation) and self.min_generation <= generation


TakeRows = Callable[[Connection, int], list[int]]


def publish(
    connection: Connection, versions: Sequence[DocumentVersion], numbers: Numbers, take_rows: TakeRows
) -> dict[str, int]:
    """Publish `versions` (one per document, by document id) inside the open transaction.

    `numbers` has every corpus and space of them; `take_rows` returns numbers for so many chunks. Returns the
    generation published afterwards, by document id.
    Raises TransientError(embedding_incomplete) when a chunk has no vector.
    """
    published, plans = _claim(connection, versions, numbers)
    if not plans:
        return published
    fresh = iter(take_rows(connection, sum(plan.lacking for plan in plans)))
    for plan in plans:
        plan.fill(fresh)
        wanted = set(plan.version.chunk_ids)
        plan.version.removed[:] = [chunk_id for chunk_id in plan.kept if chunk_id not in wanted]
    _write(connection, plans)
    _make_visible(connection, plans)
    totals = _added(plans)
    _drop_superseded(connection, plans, totals)
    add_totals(connection, totals)
    return published | {plan.version.target.document_id: plan.version.generation for plan in plans}


def _claim(
    connection: Connection, versions: Sequence[DocumentVersion], numbers: Numbers
) -> tuple[dict[str, int], list[Plan]]:
    """Lock the documents; return what is published so far, and a plan for each version that may go ahead."""
    ids, keys = [v.target.document_id for v in versions], [v.target.corpus_key for v in versions]
    urls, types = [storable(v.target.url) for v in versions], [v.page.content_type for v in versions]
    values: dict[str, object] = {"ids": ids, "keys": keys, "urls": urls, "types": types}
    values["corpora"] = [numbers.corpora[key] for key in keys]
    values["generations"] = [version.generation for version in versions]
    rows = connection.cursor(row_factory=class_row(_Claimed)).execute(SQL["claim_documents"], values)
    state = {each.document_id: each for each in rows.fetchall()}
    published = {key: each.published for key, each in state.items() if each.published is not None}
    found = ((version, state.get(version.target.document_id)) for version in versions)
    claimed = [(version, row) for version, row in found if row is not None]
    going = [(version, row) for version, row in claimed if row.admits(version.generation)]
    kept = _kept_chunks(connection, [row.id for _, row in going if row.published is not None])
    plans = []
    for version, row in going:
        corpus, space = numbers.corpora[version.target.corpus_key], numbers.spaces[version.space]
        plans.append(Plan(version, row.id, corpus, space, kept.get(row.id, {})))
    for version, row in claimed:
        version.searchable_at = row.indexed_at if row.published == version.generation else None
    return published, plans


def _write(connection: Connection, plans: Sequence[Plan]) -> None:
    new = [chunk for plan in plans for chunk in plan.chunks]
    copy_rows(connection, f"chunks ({CHUNK_COLUMNS})", map(chunk_row, new))
    copy_rows(connection, "postings", posting_rows(new))
    vectors = (
        vector_row(plan.corpus, plan.space, row, vector) for plan in plans for row, vector in plan.vectors
    )
    copy_rows(connection, "vectors", vectors)
    members = (
        membership_row(plan.document, plan.version.generation, row, place)
        for plan in plans
        for row, place in plan.places
    )
    copy_rows(connection, "memberships", members)


def _make_visible(connection: Connection, plans: Sequence[Plan]) -> None:
    versions = [plan.version for plan in plans]
    values = {
        "documents": [plan.document for plan in plans],
        "generations": [version.generation for version in versions],
        "chunks": [len(plan.places) for plan in plans],
        "spaces": [plan.space for plan in plans],
        "urls": [storable(version.target.url) for version in versions],
        "titles": [storable(version.title) for version in versions],
        "digests": [version.content_sha256 for version in versions],
        "jobs": [version.job_id for version in versions],
        "callers": [version.target.caller_id for version in versions],
        "models": [version.space.model for version in versions],
        "dimensions": [version.space.dimension for version in versions],
        "chunkers": [version.chunker for version in versions],
        "rests": [each.source and each.source.rest for each in versions],
        "texts": [each.source and each.source.sha256 for each in versions],
        "lengths": [each.source and each.source.length for each in versions],
        "pages": [json_of(version.page) for version in versions],
        "metadata": [None if each.metadata is None else Jsonb(each.metadata) for each in versions],
    }
    seen: dict[int, datetime] = dict(connection.execute(SQL["make_visible"], values).fetchall())
    if len(seen) != len(plans):
        raise missing_vectors(len(plans) - len(seen))
    for plan in plans:
        plan.version.searchable_at = seen[plan.document]


def _added(plans: Sequence[Plan]) -> Totals:
    totals = Totals()
    for plan in plans:
        totals.published(plan.corpus, bool(plan.places) - bool(plan.kept))
        for chunk in plan.chunks:
            totals.count(plan.corpus, 1, chunk.words, chunk.text, chunk.row_id)
    return totals


def add_totals(connection: Connection, totals: Totals) -> None:
    """Add to the totals of corpora, last in a transaction: their rows are shared by all writers."""
    rows = [(corpus, *change) for corpus, change in totals.changes.items()]
    names = ("corpora", "documents", "chunks", "words", "bytes", "first_rows", "last_rows")
    connection.execute(SQL["add_totals"], columns_of(names, rows))


def _kept_chunks(connection: Connection, documents: Sequence[int]) -> dict[int, dict[str, KeptChunk]]:
    """Return what the documents' published versions have, by document and chunk id."""
    found: dict[int, dict[str, KeptChunk]] = defaultdict(dict)
    if documents:
        cursor = connection.cursor(row_factory=dict_row)
        for row in cursor.execute(SQL["kept_chunks"], {"documents": list(documents)}).fetchall():
            found[row["document"]][row["chunk_id"]] = KeptChunk(row["row_id"], frozenset(row["spaces"]))
    return found


def _drop_superseded(connection: Connection, plans: Sequence[Plan], totals: Totals) -> None:
    """Drop older generations of the plans' documents, and take what goes off the totals."""
    replaced = [plan for plan in plans if plan.kept]
    if not replaced:
        return
    documents = [plan.document for plan in replaced]
    generations = [plan.version.generation for plan in replaced]
    connection.execute(SQL["drop_memberships"], {"documents": documents, "generations": generations})
    vectors = [(plan.corpus, space, row) for plan in replaced for row, space in plan.stale_vectors]
    if vectors:
        connection.execute(SQL["drop_vectors"], columns_of(("corpora", "spaces", "rows"), vectors))
    gone = [row for plan in replaced for row in plan.gone]
    if gone:
        drop_chunks(connection, gone, totals)


def drop_chunks(connection: Connection, gone: list[int], totals: Totals) -> list[tuple[int, int, int]]:
    """Drop chunks with their postings; return corpus, term, chunk of these, found by analyzing the text."""
    keys: list[tuple[int, int, int]] = []
    expected = done = 0
    cursor = connection.cursor(row_factory=dict_row)
    dropped = cursor.execute(SQL["drop_chunks"], {"rows": gone}).fetchall()
    for row in dropped:
        totals.count(row["corpus"], -1, row["words"], row["text"], row["row_id"])
        expected += row["terms"]
        if row["analyzer_version"] == ANALYZER_VERSION:
            context, text = row["context"], row["text"]
            words = count_terms(f"{context}\n\n{text}" if context else text, row["language"])
            terms = [term_of_text(context, text), *words]
            keys += [(row["corpus"], term, row["row_id"]) for term in terms]
    if keys:
        columns = columns_of(("corpora", "terms", "rows"), keys)
        done = cursor.execute(SQL["drop_postings"], columns).fetchall()[0]["words"]
    if done != expected:
        corpora = list({row["corpus"] for row in dropped})
        connection.execute(SQL["drop_postings_by_scan"], {"corpora": corpora, "rows": gone})
    return keys


def columns_of(names: Sequence[str], rows: Sequence[tuple[int, ...]]) -> dict[str, list[int]]:
    """Return `rows` as one array per column."""
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))

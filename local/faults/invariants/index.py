"""I4 and I5: documents of done jobs are searchable, complete and isolated, and nothing is duplicated."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

from indexmill.contracts.messages import EmbedTask
from local.faults.invariants.violation import Accepted, Database, Violation

Fetch = Callable[[str], bytes]
"""Reads an object of the content bucket by its key."""

_DONE: Final = """
SELECT j.id, j.document_id, j.chunk_count, d.id, d.published, d.chunk_count, d.job_id, d.model, d.dimension
FROM jobs AS j LEFT JOIN documents AS d ON d.document_id = j.document_id
WHERE j.status = 'done' AND j.job_type = 'index' AND j.kind IS DISTINCT FROM 'sitemap' ORDER BY j.id
"""
_PUBLISHED_BY_FAILED: Final = """
SELECT j.id FROM documents AS d JOIN jobs AS j ON j.id = d.job_id
WHERE d.published IS NOT NULL AND j.status = 'failed'
"""
_MEMBERS: Final = """
SELECT m.document, m.generation, m.ordinal, encode(c.chunk_id, 'hex'), c.context, c.text, s.model,
       vector_dims(e.embedding)
FROM memberships AS m
LEFT JOIN chunks AS c ON c.id = m.chunk
LEFT JOIN vectors AS e ON e.corpus = c.corpus AND e.chunk = c.id
LEFT JOIN spaces AS s ON s.id = e.space
ORDER BY m.document, m.generation, m.ordinal
"""
_EMBED_PAYLOADS: Final = """
SELECT job_id, payload FROM outbox WHERE stage = 'embedding' AND kind = 'queue' AND job_id = ANY(%s)
"""
_ORPHANS: Final = {
    "chunks of no document": """
        SELECT c.id::text FROM chunks AS c
        WHERE NOT EXISTS (SELECT FROM memberships AS m WHERE m.chunk = c.id)""",
    "vectors of no chunk": """
        SELECT e.chunk::text FROM vectors AS e
        WHERE NOT EXISTS (SELECT FROM chunks AS c WHERE c.id = e.chunk)""",
    "words of no chunk": """
        SELECT DISTINCT p.chunk::text FROM postings AS p
        WHERE NOT EXISTS (SELECT FROM chunks AS c WHERE c.id = p.chunk)""",
    "chunks with some of their words only": """
        SELECT c.id::text FROM chunks AS c LEFT JOIN (
            SELECT corpus, chunk, count(*) AS terms FROM postings WHERE term >= 0 GROUP BY corpus, chunk
        ) AS p ON p.corpus = c.corpus AND p.chunk = c.id
        WHERE c.terms <> coalesce(p.terms, 0)""",
}
_TOTALS: Final = """
SELECT corpus, sum(chunks), sum(words) FROM (
    SELECT corpus, chunks, words FROM corpus_totals
    UNION ALL SELECT corpus, -1, -words FROM chunks
) AS all_of_them GROUP BY corpus HAVING sum(chunks) <> 0 OR sum(words) <> 0
"""
_TWICE: Final = """
SELECT job_id, stage, count(*) FROM outbox GROUP BY job_id, attempt, stage HAVING count(*) > 1
"""


def done_is_complete(database: Database, fetch: Fetch) -> list[Violation]:
    """Check I4 in the tables: a done job's document has its chunks, each with a vector."""
    done = database.execute(_DONE).fetchall()
    members: dict[int, list[tuple[Any, ...]]] = {}
    for document, rows in groupby(database.execute(_MEMBERS).fetchall(), key=lambda row: row[0]):
        members[document] = list(rows)
    given = _given_chunks(database, [row[0] for row in done], fetch)
    found = [
        Violation("I4", job_id, "failed, and its published chunks are searchable")
        for (job_id,) in database.execute(_PUBLISHED_BY_FAILED).fetchall()
    ]
    return found + [
        Violation("I4", row[0], what)
        for row in done
        for what in _document_errors(row, members.get(row[3], []), given.get(row[0]))
    ]


def _document_errors(
    row: tuple[Any, ...], members: list[tuple[Any, ...]], given: list[str] | None
) -> list[str]:
    job_id, document_id, expected, _, published, counted, owner, model, dimension = row
    if published is None:
        return ["is done, and its document is not published"]
    errors = []
    generations = {each[1] for each in members}
    if generations != {published}:
        errors.append(f"generation {published} is published, and there are chunks of {sorted(generations)}")
    current = [each for each in members if each[1] == published]
    if len(current) != counted or (owner == job_id and expected != counted):
        errors.append(f"{len(current)} chunks, {counted} by the catalogue, {expected} by the job")
    if [each[2] for each in current] != list(range(len(current))):
        errors.append("its chunks are not numbered from 0, each once")
    if [each[3] for each in current] != _ids(document_id, current):
        errors.append("a chunk's id is not that of its text")
    if any((each[6], each[7]) != (model, dimension) for each in current):
        errors.append(f"a chunk has no vector of {model}, {dimension} numbers, or another one beside it")
    if owner == job_id and given is not None and given != [each[3] for each in current]:
        errors.append(f"{len(given)} chunks were to be embedded, and others are in the index")
    return errors


def _ids(document_id: str, members: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the expected ids of the texts; computed here, since the product's own code could be wrong."""
    seen: Counter[str] = Counter()
    ids = []
    for _, _, _, _, context, text, _, _ in members:
        embedded = f"{context}\n\n{text}" if context else str(text)
        ids.append(hashlib.sha256(f"{document_id}\0{embedded}\0{seen[embedded]}".encode()).hexdigest())
        seen[embedded] += 1
    return ids


def _given_chunks(database: Database, job_ids: list[str], fetch: Fetch) -> dict[str, list[str]]:
    """Return the chunk ids of each job's newest embed message, where that is still stored."""
    from pydantic import TypeAdapter

    from indexmill.contracts.content import Chunk, chunk_ids

    found: dict[str, tuple[int, list[str]]] = {}
    for job_id, payload in database.execute(_EMBED_PAYLOADS, (job_ids,)).fetchall():
        task = EmbedTask.model_validate_json(payload)
        chunks = task.chunks
        if chunks is None and task.chunks_ref is not None:
            chunks = TypeAdapter(list[Chunk]).validate_json(fetch(task.chunks_ref.key))
        if task.generation > found.get(job_id, (-1, []))[0]:
            found[job_id] = task.generation, chunk_ids(task.target.document_id, chunks or [])
    return {job_id: ids for job_id, (_, ids) in found.items()}


def done_is_searchable(
    database: Database, accepted: Sequence[Accepted], search: Callable[[str, str], list[str]]
) -> list[Violation]:
    """Check I4 through the API: a search for a document's unique sentence finds it.

    `search` returns the source URLs of the hits in a corpus for a text, best first.
    """
    done = {row[0] for row in database.execute("SELECT id FROM jobs WHERE status = 'done'").fetchall()}
    found = []
    for each in accepted:
        if each.job_id in done and each.sentence:
            hits = search(each.sentence, each.corpus)
            if hits != [each.url]:
                found.append(
                    Violation("I4", each.job_id, f"its own sentence is found in {hits or 'nothing'}")
                )
    return found


def no_duplicates(database: Database) -> list[Violation]:
    """Check I5: duplicate messages have no effect.

    That is: no orphans, exact totals, one message per stage and attempt.
    """
    found = []
    for what, statement in _ORPHANS.items():
        rows = [row[0] for row in database.execute(statement).fetchall()]
        if rows:
            found.append(Violation("I5", "index", f"{len(rows)} {what}: {', '.join(rows[:5])}"))
    for corpus, chunks, words in database.execute(_TOTALS).fetchall():
        found.append(Violation("I5", f"corpus {corpus}", f"totals are off by {chunks} chunks, {words} words"))
    for job_id, stage, count in database.execute(_TWICE).fetchall():
        found.append(Violation("I5", job_id, f"{count} messages for {stage}"))
    return found

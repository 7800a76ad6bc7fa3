"""Document versions and questions for tests of the vector index."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Sequence

from indexmill.contracts.content import Chunk, chunk_ids
from indexmill.contracts.identity import corpus_key, document_id
from indexmill.contracts.messages import Target
from indexmill.embedding.ports import DocumentVersion, Hit, SearchQuery, Space, Vector, VectorIndex
from indexmill.embedding.ranking import Order, ordered
from indexmill.embedding.search import page

SPACE = Space("tiny", 4)
CALLER = "0123456789abcdef"


def vector_of(text: str, space: Space = SPACE) -> list[float]:
    """Return a unit vector drawn from the text."""
    draw = random.Random(hashlib.sha256(text.encode("utf-8", "replace")).digest())
    numbers = [draw.gauss(0, 1) for _ in range(space.dimension)]
    length = sum(number * number for number in numbers) ** 0.5
    return [number / length for number in numbers]


def target(url: str = "https://a.example/", corpus: str = "default", caller: str = CALLER) -> Target:
    """Return the document that `url` is in the caller's corpus."""
    key = corpus_key(caller, corpus)
    return Target(
        caller_id=caller, corpus_name=corpus, corpus_key=key, document_id=document_id(key, url), url=url
    )


def version(
    texts: Sequence[str],
    generation: int = 1,
    *,
    to: Target | None = None,
    space: Space = SPACE,
    without: Collection[str] = (),
    vectors: dict[str, Vector] | None = None,
) -> DocumentVersion:
    """Return a version with one chunk per text; `without` names chunk ids whose vector is left out."""
    to = to or target()
    chunks = [
        Chunk(ordinal=at, text=text, context="Guide", start=100 * at, end=100 * at + len(text), tokens=3)
        for at, text in enumerate(texts)
    ]
    ids = chunk_ids(to.document_id, chunks)
    made: dict[str, Vector] = {
        chunk_id: vector_of(text, space)
        for chunk_id, text in zip(ids, texts, strict=True)
        if chunk_id not in without
    }
    return DocumentVersion(
        target=to,
        generation=generation,
        job_id="job-1",
        title=f"Title {generation}",
        content_sha256="sha",
        space=space,
        chunks=chunks,
        chunk_ids=ids,
        vectors=made if vectors is None else vectors,
    )


def with_vectors(
    to: Target, chunks: Sequence[Chunk], space: Space, vectors: Sequence[Vector]
) -> DocumentVersion:
    """Return the first version of a document with a vector for each of its chunks."""
    ids = chunk_ids(to.document_id, list(chunks))
    kept = dict(zip(ids, vectors, strict=True))
    return DocumentVersion(to, 1, None, None, None, space, list(chunks), ids, kept)


def results(
    index: VectorIndex,
    text: str | None,
    vector: Vector | None = None,
    top_k: int = 10,
    *,
    key: str | None = None,
    space: Space = SPACE,
) -> list[tuple[Hit, float]]:
    """Search as the use case does; return what is found with its scores, best first."""
    corpora = [key or target().corpus_key]
    lists = index.lists(SearchQuery(corpora, space, text, vector))
    ranked = ordered(lists, Order(hybrid=text is not None and vector is not None))
    return [(hit, each.score) for each, hit in page(index, corpora, ranked, top_k)]


def find(
    index: VectorIndex,
    text: str | None,
    *,
    vector: Vector | None = None,
    to: Target | None = None,
    top_k: int = 10,
    space: Space = SPACE,
) -> list[str]:
    """Return the texts that a search finds, best first."""
    key = None if to is None else to.corpus_key
    return [hit.text for hit, _ in results(index, text, vector, top_k, key=key, space=space)]

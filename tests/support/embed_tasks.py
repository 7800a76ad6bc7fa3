"""Embed tasks and an index that only remembers, for the worker's tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from indexmill.contracts.content import Chunk
from indexmill.contracts.errors import IndexmillError
from indexmill.contracts.identity import corpus_key, document_id
from indexmill.contracts.messages import EmbedTask, Target
from indexmill.embedding.ports import (
    DocumentVersion,
    Hit,
    Lists,
    Named,
    PublishOutcome,
    SearchQuery,
    Space,
    Vector,
)

CALLER = "0123456789abcdef"


class RecordingIndex:
    """Keeps chunk ids and what was published; a title among `fail_on` makes its publish call fail."""

    def __init__(self) -> None:
        self.kept: set[str] = set()
        self.published: list[list[DocumentVersion]] = []
        self.stale: set[str] = set()
        self.fail_on: dict[str, IndexmillError] = {}
        self.stored_calls = 0
        self.known_texts: dict[str, Vector] = {}

    def stored(self, space: Space, chunk_ids: Sequence[str]) -> set[str]:
        self.stored_calls += 1
        return self.kept & set(chunk_ids)

    def copies(self, space: Space, chunks: Mapping[str, tuple[Target, Chunk]]) -> dict[str, Vector]:
        texts = {key: chunk.embedded_text for key, (_, chunk) in chunks.items()}
        return {key: self.known_texts[text] for key, text in texts.items() if text in self.known_texts}

    def publish(self, versions: Sequence[DocumentVersion]) -> list[PublishOutcome]:
        for version in versions:
            if version.title in self.fail_on:
                raise self.fail_on[version.title]
        self.published.append(list(versions))
        for version in versions:
            assert set(version.chunk_ids) <= self.kept | set(version.vectors)
            self.kept.update(version.vectors)
        stale, fine = PublishOutcome.SUPERSEDED, PublishOutcome.PUBLISHED
        return [stale if version.title in self.stale else fine for version in versions]

    def corpus_exists(self, corpus: str | Named) -> bool:
        return True

    def lists(self, query: SearchQuery) -> Lists:
        return Lists([], [], 1.0, other_model=False, keys=[str(each) for each in query.corpora])

    def hits(self, corpora: Sequence[str], chunk_ids: Sequence[str], neighbours: int = 0) -> dict[str, Hit]:
        return {}

    @property
    def titles(self) -> list[str | None]:
        """Titles of everything published, in order."""
        return [version.title for call in self.published for version in call]


def chunks(*texts: str) -> list[Chunk]:
    return [
        Chunk(ordinal=at, text=text, start=at * 10, end=at * 10 + len(text), tokens=1)
        for at, text in enumerate(texts)
    ]


def embed_task(name: str, *texts: str, job: bool = True, generation: int = 1) -> EmbedTask:
    """Return a task for document `name`, by default with a job of the same name."""
    given = chunks(*(texts or (f"text of {name}",)))
    key = corpus_key(CALLER, "default")
    url = f"https://site.example/{name}"
    target = Target(
        caller_id=CALLER, corpus_name="default", corpus_key=key, document_id=document_id(key, url), url=url
    )
    return EmbedTask(
        message_id=f"m-{name}",
        job_id=f"j-{name}" if job else None,
        attempt=2,
        request_id="r-1",
        target=target,
        generation=generation,
        title=name,
        chunks=given,
        chunk_count=len(given),
    )

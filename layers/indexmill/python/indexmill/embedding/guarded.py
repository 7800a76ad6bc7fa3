"""Embedder, reranker and vector index behind their circuit breakers, and calls that keep to their time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Final, TypeVar

import pybreaker

from indexmill.contracts.content import Chunk
from indexmill.contracts.errors import ErrorCode, IndexmillError, failure
from indexmill.contracts.http_deletion import Erased
from indexmill.contracts.messages import Target
from indexmill.embedding.ports import (
    DocumentVersion,
    Embedder,
    Hit,
    Lists,
    Named,
    NotReranked,
    PublishOutcome,
    Reranker,
    SearchQuery,
    Space,
    Vector,
    VectorIndex,
)
from indexmill.platform.breakers import FAILURES, OPEN_S, Breaker

T = TypeVar("T")

_MOST_LEFT: Final = 8
"""Calls that are left behind at one time; with so many no other is begun."""


class Punctual:
    """Calls that end in time, whatever holds them up.

    The look-up of a name has no time limit, and those of sockets are for each read: headers that come a byte
    at a time never reach them. So a call is made in a thread of its own, which is left behind when its time
    has ended; the lock of its breaker, and the next call, do not wait for it.
    """

    def __init__(self, end: Callable[[], object] = lambda: None) -> None:
        """`end` takes the connections from calls that are left behind: an endpoint that keeps sending would
        hold them without end.
        """
        self._end = end
        self._left: list[Thread] = []

    def __call__(self, work: Callable[[], T], timeout_s: float, endpoint: str) -> T:
        """Return what `work` does; also raises TransientError(embedding_unavailable)."""
        self._left = [thread for thread in self._left if thread.is_alive()]
        if len(self._left) >= _MOST_LEFT:
            self._end()
            message = f"Too many calls to the {endpoint} endpoint have not come back."
            raise failure(ErrorCode.EMBEDDING_UNAVAILABLE, message)
        answer: Future[T] = Future()
        thread = Thread(target=self._call, args=(answer, work), name=endpoint, daemon=True)
        thread.start()
        try:
            return answer.result(timeout_s)
        except TimeoutError as error:
            self._left.append(thread)
            self._end()
            message = f"The {endpoint} endpoint took too long."
            raise failure(ErrorCode.EMBEDDING_UNAVAILABLE, message) from error

    @staticmethod
    def _call(answer: Future[T], work: Callable[[], T]) -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - of the caller, who waits for it
            answer.set_exception(error)


class PunctualEmbedder:
    """An `Embedder` whose calls end in time."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        prepare: Callable[[], object] = lambda: None,
        end: Callable[[], object] = lambda: None,
    ) -> None:
        """`prepare` is done before the time of a call begins: what is loaded at first use.

        `end` takes the connections from calls that are left behind.
        """
        self._embedder = embedder
        self._prepare = prepare
        self._punctual = Punctual(end)

    @property
    def space(self) -> Space:
        """The space of every vector this embedder returns."""
        return self._embedder.space

    def embed(self, texts: Sequence[str], *, timeout_s: float) -> list[Vector]:
        """Return one vector per text, in order; also raises TransientError(embedding_unavailable)."""
        self._prepare()
        work = partial(self._embedder.embed, texts, timeout_s=timeout_s)
        return self._punctual(work, timeout_s, "embedding")


class GuardedReranker:
    """A `Reranker` whose calls end in time; after three failures in a row it is left alone for a while.

    Each process counts for itself: what its outage costs is the limit of three calls.
    """

    def __init__(
        self, reranker: Reranker, *, end: Callable[[], object] = lambda: None, open_s: float = OPEN_S
    ) -> None:
        """`end` takes the connections from calls that are left behind."""
        self._reranker = reranker
        self._punctual = Punctual(end)
        self._breaker = pybreaker.CircuitBreaker(
            fail_max=FAILURES, reset_timeout=open_s, throw_new_error_on_trip=False
        )

    def rerank(self, query: str, texts: Sequence[str], *, timeout_s: float) -> list[float]:
        """Return a finite score per text, in order. Raises NotReranked."""
        work = partial(self._reranker.rerank, query, texts, timeout_s=timeout_s)
        try:
            scores: list[float] = self._breaker.call(self._punctual, work, timeout_s, "reranking")
        except (IndexmillError, pybreaker.CircuitBreakerError) as error:
            raise NotReranked(str(error)) from error
        return scores


@dataclass(frozen=True, slots=True)
class GuardedEmbedder:
    """An `Embedder` that raises BreakerOpen while the endpoint's breaker is open."""

    embedder: Embedder
    breaker: Breaker

    @property
    def space(self) -> Space:
        """The space of every vector this embedder returns."""
        return self.embedder.space

    def embed(self, texts: Sequence[str], *, timeout_s: float) -> list[Vector]:
        """Return one vector per text, in order."""
        return self.breaker.call(lambda: self.embedder.embed(texts, timeout_s=timeout_s))


@dataclass(frozen=True, slots=True)
class GuardedIndex:
    """A `VectorIndex` whose write calls raise BreakerOpen while the index's breaker is open."""

    index: VectorIndex
    breaker: Breaker

    def stored(self, space: Space, chunk_ids: Sequence[str]) -> set[str]:
        """Return those of `chunk_ids` whose vector in `space` is already kept."""
        return self.breaker.call(lambda: self.index.stored(space, chunk_ids))

    def copies(self, space: Space, chunks: Mapping[str, tuple[Target, Chunk]]) -> dict[str, Vector]:
        """Return vectors that other documents of the same caller and corpus have for equal texts."""
        return self.breaker.call(lambda: self.index.copies(space, chunks))

    def publish(self, versions: Sequence[DocumentVersion]) -> list[PublishOutcome]:
        """Make each version what search sees of its document."""
        return self.breaker.call(lambda: self.index.publish(versions))

    def erase(self, job_id: str, document_ids: Sequence[str], generation: int) -> Erased:
        """Erase the documents; return what there was."""
        return self.breaker.call(lambda: self.index.erase(job_id, document_ids, generation))

    def corpus_exists(self, corpus: str | Named) -> bool:
        """Return whether the corpus was ever submitted to, as far as is known."""
        return self.index.corpus_exists(corpus)

    def lists(self, query: SearchQuery) -> Lists:
        """Return the candidates among the chunks of published versions."""
        return self.index.lists(query)

    def hits(self, corpora: Sequence[str], chunk_ids: Sequence[str], neighbours: int = 0) -> dict[str, Hit]:
        """Return those of the chunks that are published in one of the corpora, by chunk id."""
        return self.index.hits(corpora, chunk_ids, neighbours)

"""Embedder and vector index behind their circuit breakers, and an embedder that keeps to its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Final

from indexmill.contracts.errors import ErrorCode, failure
from indexmill.embedding.ports import (
    DocumentVersion,
    Embedder,
    Hit,
    Lists,
    Named,
    PublishOutcome,
    SearchQuery,
    Space,
    Vector,
    VectorIndex,
)
from indexmill.platform.breakers import Breaker

_MOST_LEFT: Final = 8
"""Calls that are left behind at one time; with so many no other is begun."""


class PunctualEmbedder:
    """An `Embedder` whose calls end in time, whatever holds them up.

    The look-up of a name has no time limit, and those of sockets are for each read: headers that come a byte
    at a time never reach them. So a call is made in a thread of its own, which is left behind when its time
    has ended; the lock of its breaker, and the next call, do not wait for it.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        prepare: Callable[[], object] = lambda: None,
        end: Callable[[], object] = lambda: None,
    ) -> None:
        """`prepare` is done before the time of a call begins: what is loaded at first use.

        `end` takes the connections from calls that are left behind: an endpoint that keeps sending would
        hold them without end.
        """
        self._embedder = embedder
        self._prepare = prepare
        self._end = end
        self._left: list[Thread] = []

    @property
    def space(self) -> Space:
        """The space of every vector this embedder returns."""
        return self._embedder.space

    def embed(self, texts: Sequence[str], *, timeout_s: float) -> list[Vector]:
        """Return one vector per text, in order; also raises TransientError(embedding_unavailable)."""
        self._left = [thread for thread in self._left if thread.is_alive()]
        if len(self._left) >= _MOST_LEFT:
            self._end()
            message = "Too many calls to the embedding endpoint have not come back."
            raise failure(ErrorCode.EMBEDDING_UNAVAILABLE, message)
        self._prepare()
        answer: Future[list[Vector]] = Future()
        thread = Thread(target=self._call, args=(answer, texts, timeout_s), name="embed", daemon=True)
        thread.start()
        try:
            return answer.result(timeout_s)
        except TimeoutError as error:
            self._left.append(thread)
            self._end()
            message = "The embedding endpoint took too long."
            raise failure(ErrorCode.EMBEDDING_UNAVAILABLE, message) from error

    def _call(self, answer: Future[list[Vector]], texts: Sequence[str], timeout_s: float) -> None:
        try:
            answer.set_result(self._embedder.embed(texts, timeout_s=timeout_s))
        except BaseException as error:  # noqa: BLE001 - of the caller, who waits for it
            answer.set_exception(error)


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

    def publish(self, versions: Sequence[DocumentVersion]) -> list[PublishOutcome]:
        """Make each version what search sees of its document."""
        return self.breaker.call(lambda: self.index.publish(versions))

    def corpus_exists(self, corpus: str | Named) -> bool:
        """Return whether the corpus was ever submitted to, as far as is known."""
        return self.index.corpus_exists(corpus)

    def lists(self, query: SearchQuery) -> Lists:
        """Return the candidates among the chunks of published versions."""
        return self.index.lists(query)

    def hits(self, corpora: Sequence[str], chunk_ids: Sequence[str]) -> dict[str, Hit]:
        """Return those of the chunks that are published in one of the corpora, by chunk id."""
        return self.index.hits(corpora, chunk_ids)

"""Embedder on the `openai` client, for OpenAI's cloud and compatible endpoints.

The client is only the transport: it passes on missing, reordered, NaN and short vectors without a word, so
the answer is read as bytes and checked here. The library is imported on first use: that takes half a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from indexmill.contracts.errors import ErrorCode, IndexmillError
from indexmill.embedding.adapters.openai_errors import translated
from indexmill.embedding.adapters.openai_reply import read_vectors
from indexmill.embedding.classify import failure
from indexmill.embedding.ports import Space, Vector
from indexmill.platform.time.clock import Clock, SystemClock

if TYPE_CHECKING:
    from openai import OpenAI

_REQUEST_CHARS: Final = 250_000
"""OpenAI takes 300,000 tokens in one request, and hardly any text has more tokens than characters."""
_BYTES_PER_NUMBER: Final = 24
_BYTES_PER_ITEM: Final = 1_000
_BYTES_AROUND: Final = 65_536


class OpenAIEmbedder:
    """Vectors of one model, in requests of bounded size."""

    def __init__(
        self,
        space: Space,
        *,
        base_url: str,
        api_key: str,
        max_batch_inputs: int = 256,
        request_timeout_s: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        """`base_url` ends with the version, for example `…/v1`; nothing is opened yet."""
        self._space = space
        self._base_url = base_url
        self._api_key = api_key
        self._max_batch_inputs = max_batch_inputs
        self._request_timeout_s = request_timeout_s
        self._clock = clock or SystemClock()
        self._client: OpenAI | None = None

    @property
    def space(self) -> Space:
        """The space of every vector this embedder returns."""
        return self._space

    def embed(self, texts: Sequence[str], *, timeout_s: float) -> list[Vector]:
        """Return one checked vector per text, in order; `timeout_s` is for all requests together."""
        deadline = self._clock.monotonic() + timeout_s
        vectors: list[Vector] = []
        for batch in batches(texts, self._max_batch_inputs, _REQUEST_CHARS):
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                raise _too_slow()
            body = self._request(batch, min(remaining, self._request_timeout_s))
            vectors.extend(read_vectors(body, len(batch), self._space.dimension))
        return vectors

    def _request(self, texts: list[str], timeout_s: float) -> bytes:
        deadline = self._clock.monotonic() + timeout_s
        limit = len(texts) * (self._space.dimension * _BYTES_PER_NUMBER + _BYTES_PER_ITEM) + _BYTES_AROUND
        try:
            with self._opened().embeddings.with_streaming_response.create(
                model=self._space.model,
                # The client inspects each text of `input`, 7 us apiece; `extra_body` is only merged.
                input=[],
                extra_body={"input": texts},
                encoding_format="base64",
                timeout=timeout_s,
            ) as answer:
                return self._received(answer.iter_bytes(), limit, deadline)
        except IndexmillError:
            raise
        except Exception as error:
            known = translated(error, self._clock.now())
            if known is None:
                raise
            raise known from error

    def _received(self, parts: Iterator[bytes], limit: int, deadline: float) -> bytes:
        """Put the parts together as they arrive; parts of a given size would be waited for without limit."""
        received = bytearray()
        for part in parts:
            received += part
            if len(received) > limit:
                raise failure(ErrorCode.EMBEDDING_BAD_RESPONSE, "The embedding answer is too large.")
            # The client's time limit is per read; a slow, endless answer would never reach it.
            if self._clock.monotonic() > deadline:
                raise _too_slow()
        return bytes(received)

    def _opened(self) -> OpenAI:
        if self._client is None:
            from openai import OpenAI

            self._client = OpenAI(api_key=self._api_key, base_url=self._base_url, max_retries=0)
        return self._client


def batches(texts: Sequence[str], max_inputs: int, max_chars: int) -> Iterator[list[str]]:
    """Cut `texts` into lists of at most `max_inputs` texts and, if no text alone has more, `max_chars`."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == max_inputs or size + len(text) > max_chars):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _too_slow() -> IndexmillError:
    return failure(ErrorCode.EMBEDDING_UNAVAILABLE, "The embedding endpoint took too long.")

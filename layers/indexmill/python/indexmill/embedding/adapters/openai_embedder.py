"""Embedder on the `openai` client, for OpenAI's cloud and compatible endpoints.

The client is only the transport: it passes on missing, reordered, NaN and short vectors without a word, so
the answer is read as bytes and checked here. The library is imported on first use: that takes half a second.
"""

from __future__ import annotations

import binascii
import math
import re
import socket
import sys
from array import array
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json

from indexmill.contracts.errors import ErrorCode, IndexmillError, Refused, failure
from indexmill.embedding.ports import Space, Vector
from indexmill.platform.aws.secrets import Secret
from indexmill.platform.time import Clock, SystemClock

if TYPE_CHECKING:
    import httpx2
    from openai import OpenAI

_REQUEST_CHARS: Final = 250_000
"""OpenAI takes 300,000 tokens in one request, and hardly any text has more tokens than characters."""
_BYTES_PER_NUMBER: Final = 24
_BYTES_PER_ITEM: Final = 1_000
_BYTES_AROUND: Final = 65_536
_CONNECTED: Final = ("connection.connect_tcp.complete", "connection.start_tls.complete")
_HARMLESS: Final = "The quick brown fox jumps over the lazy dog."
"""An endpoint that refuses this refuses us, and not a text."""


class OpenAIEmbedder:
    """Vectors of one model, in requests of bounded size."""

    def __init__(
        self,
        space: Space,
        *,
        base_url: str,
        api_key: Secret,
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
        self._connections = _Connections()

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
        """Return the answer to `texts`.

        Raises what `translated` returns. Whether a refusal (401, 403, 404) is about us or about one of the
        texts is found out by asking again: with the key as it is now, then for a text that no one refuses.
        """
        deadline = self._clock.monotonic() + timeout_s
        try:
            return self._sent(texts, deadline)
        except Refused as error:
            refused = error
        if self._key_changed():
            try:
                return self._sent(texts, deadline)
            except Refused as error:
                refused = error
        self._sent([_HARMLESS], deadline)
        raise failure(ErrorCode.EMBEDDING_REJECTED, "The embedding endpoint refuses this text.") from refused

    def _sent(self, texts: list[str], deadline: float) -> bytes:
        timeout_s = deadline - self._clock.monotonic()
        if timeout_s <= 0:
            raise _too_slow()
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

    def _key_changed(self) -> bool:
        """Return whether the key that was refused is another one now."""
        return self._client is not None and self._api_key.again() != self._client.api_key

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

    def load(self) -> OpenAI:
        """Return the client, made when there is none: that takes a second of a small function's CPU."""
        if self._client is None:
            from openai import OpenAI

            made = OpenAI(api_key="not read yet", base_url=self._base_url, max_retries=0)
            # One that is given to it would not be closed with it.
            made._client.event_hooks = {"request": [self._connections.observe]}
            self._client = made
        return self._client

    def end(self) -> None:
        """End the calls that are under way in other threads, by the end of their connections."""
        self._connections.end()

    def _opened(self) -> OpenAI:
        client = self.load()
        client.api_key = self._api_key.current()
        return client


class _Connections:
    """Sockets of one client, some of which may be closed."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def observe(self, request: httpx2.Request) -> None:
        """Have the transport report the connections that it opens for `request`."""
        request.extensions["trace"] = self._trace

    def end(self) -> None:
        """Wake the threads that read from them, which then close them."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event in _CONNECTED:
            made: socket.socket = info["return_value"].get_extra_info("socket")
            self._sockets = [*(each for each in self._sockets if each.fileno() >= 0), made]


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


def read_vectors(body: bytes, count: int, dimension: int) -> list[Vector]:
    """Return `count` vectors in the order of the request.

    Raises TransientError: embedding_bad_response (not the protocol), embedding_incomplete (not one vector per
    text), embedding_invalid (NaN, infinite or zero); PermanentError(dimension_mismatch).
    """
    by_index: dict[int, Any] = {}
    items = _items(body)
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        if type(index) is not int:
            raise _unreadable()
        by_index[index] = item.get("embedding")
    if len(items) != count or by_index.keys() != set(range(count)):
        raise failure(
            ErrorCode.EMBEDDING_INCOMPLETE,
            f"The embedding endpoint sent {len(items)} vectors for {count} texts.",
        )
    return [_checked(_vector(by_index[index]), dimension) for index in range(count)]


def _items(body: bytes) -> list[Any]:
    try:
        answer = from_json(body)
    except ValueError as error:
        raise _unreadable() from error
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise _unreadable()
    return items


def _vector(value: object) -> array[float]:
    """Read base64 of little-endian float32, or a list of numbers from servers that know no other form."""
    try:
        if isinstance(value, list):
            return array("f", value)
        vector = array("f")
        vector.frombytes(b64decode(value, validate=True))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise _unreadable() from error
    if sys.byteorder == "big":
        vector.byteswap()
    return vector


def _checked(vector: array[float], dimension: int) -> Vector:
    if len(vector) != dimension:
        raise failure(
            ErrorCode.DIMENSION_MISMATCH,
            f"The model gives {len(vector)} dimensions, {dimension} are configured.",
        )
    # One NaN or infinity anywhere makes the sum one; a sum of finite float32 numbers always fits a double.
    if not math.isfinite(sum(vector)) or not any(vector):
        raise failure(ErrorCode.EMBEDDING_INVALID)
    return vector


def _unreadable() -> IndexmillError:
    return failure(ErrorCode.EMBEDDING_BAD_RESPONSE)


_LONGEST_WAIT_S: Final = 43_200
"""A queue can hold a message back for 12 hours."""
_TRANSIENT_STATUS: Final = frozenset((408, 409, 425, 429))
_REFUSALS: Final = frozenset((401, 403, 404))
"""Authentication, permission, no such model: of us rather than of a text. Every other 4xx is permanent."""
_TOKEN_LIMIT_CODES: Final = frozenset(
    ("context_length_exceeded", "max_tokens_per_request", "string_above_max_length")
)
_TOKEN_LIMIT: Final = re.compile(
    r"context (length|window)|max\w* (\w+ )?(input )?tokens|tokens? limit|too many tokens"
    r"|less than \d+ tokens|(maximum|max)\w* (sequence|input) length",
    re.IGNORECASE,
)


def translated(error: Exception, now: datetime) -> IndexmillError | None:
    """Return our error for one of the client's or its transport's; None for any other."""
    import httpx2
    import openai

    # By status rather than by class: BadRequestError is an APIStatusError too, and must never be tried again.
    if isinstance(error, openai.APIStatusError):
        # A server of one's own may say it in a string, which the client leaves out of its message.
        said = error.body if isinstance(error.body, str) else error.message
        return _of_status(error.status_code, str(error.code), said, error.response.headers, now)
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return failure(ErrorCode.EMBEDDING_UNAVAILABLE, "The embedding endpoint took too long.")
    if isinstance(error, openai.APIConnectionError | httpx2.HTTPError):
        return failure(ErrorCode.EMBEDDING_UNAVAILABLE)
    if isinstance(error, openai.APIError):
        return failure(ErrorCode.EMBEDDING_BAD_RESPONSE)
    return None


def _of_status(
    status: int, code: str, message: str, headers: Mapping[str, str], now: datetime
) -> IndexmillError:
    says_so = status in (400, 413, 422) and _TOKEN_LIMIT.search(message) is not None
    return status_failure(
        status,
        too_long=code in _TOKEN_LIMIT_CODES or says_so,
        retry_after=wait_asked_for(headers.get("retry-after"), now),
    )


def status_failure(status: int, *, too_long: bool, retry_after: int | None) -> IndexmillError:
    """Return the error for an endpoint that answered `status`; `too_long`: it says that a text is."""
    if 400 <= status < 500 and status not in _TRANSIENT_STATUS:
        if too_long:
            return failure(ErrorCode.TOKEN_LIMIT_EXCEEDED)
        message = f"The embedding endpoint refused the request (HTTP {status})."
        if status in _REFUSALS:
            return Refused(ErrorCode.EMBEDDING_UNAVAILABLE, message)
        return failure(ErrorCode.EMBEDDING_REJECTED, message)
    if status == 429:
        return failure(ErrorCode.OPENAI_RATE_LIMIT, retry_after=retry_after)
    message = f"The embedding endpoint failed (HTTP {status})."
    return failure(ErrorCode.EMBEDDING_UNAVAILABLE, message, retry_after=retry_after)


def wait_asked_for(value: str | None, now: datetime) -> int | None:
    """Return the seconds of a Retry-After header, a number or a date; None when it is absent or senseless."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    if not seconds > 0:
        return None
    return int(min(seconds, _LONGEST_WAIT_S) + 0.999)

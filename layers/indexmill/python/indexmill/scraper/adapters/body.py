"""Body of an answer, bounded in bytes while it arrives, packed or not."""

from __future__ import annotations

import zlib
from typing import Final

from indexmill.contracts.errors import ErrorCode, TransientError, failure

_BOMB_RATIO: Final = 100
"""Text compresses 3 to 20 times; 100 times is an attack."""
_MAX_MEMBERS: Final = 16
_GZIP: Final = 31
_MAGIC: Final = b"\x1f\x8b"


class Body:
    """Collects a body of at most `limit` bytes; gzip is undone on the way, never further than the limit."""

    def __init__(self, *, limit: int, gzip: bool, truncate: bool = False) -> None:
        """`truncate` cuts at the limit instead of refusing."""
        self._limit = limit
        self._truncate = truncate
        self._parts: list[bytes] = []
        self._size = 0
        self._received = 0
        self._members = 0
        self._inflater = zlib.decompressobj(_GZIP) if gzip else None
        self._finished = False

    def feed(self, data: bytes) -> bool:
        """Take the next piece; False when no more is wanted.

        Raises PermanentError (content_too_large, content_bomb), TransientError (parse_error: damaged).
        """
        self._received += len(data)
        if self._inflater is not None:
            return self._inflate(self._inflater, data)
        return self._keep(data)

    def done(self) -> bytes:
        """Return the whole body. Raises TransientError(parse_error) when its end is missing."""
        inflater = self._inflater
        if inflater is not None and self._received and not inflater.eof and not self._finished:
            raise damaged()
        return b"".join(self._parts)

    def _inflate(self, inflater: zlib._Decompress, data: bytes) -> bool:
        while data and not self._finished:
            try:
                out = inflater.decompress(data, self._limit + 1 - self._size)
            except zlib.error as error:
                raise damaged() from error
            if not self._keep(out):
                return False
            if not inflater.eof:
                return True
            data = inflater.unused_data
            if len(data) < len(_MAGIC) and _MAGIC.startswith(data):
                return True  # the start of another member may be in the next piece
            if not data.startswith(_MAGIC):
                self._finished = True  # like browsers, ignore what follows the last member
                break
            self._members += 1
            if self._members > _MAX_MEMBERS:
                raise failure(ErrorCode.CONTENT_BOMB)
            self._inflater = inflater = zlib.decompressobj(_GZIP)
        return not self._finished

    def _keep(self, data: bytes) -> bool:
        self._size += len(data)
        if self._size <= self._limit:
            self._parts.append(data)
            return True
        if self._truncate:
            self._parts.append(data[: len(data) - (self._size - self._limit)])
            self._size = self._limit
            self._finished = True
            return False
        raise failure(ErrorCode.CONTENT_BOMB if self._is_bomb() else ErrorCode.CONTENT_TOO_LARGE)

    def _is_bomb(self) -> bool:
        """Return whether what came out is out of proportion to what was read for it."""
        if self._inflater is None:
            return False
        return self._size > _BOMB_RATIO * (self._received - len(self._inflater.unconsumed_tail))


def damaged() -> TransientError:
    """Return the error of a body that does not decode as it was announced: another try may help."""
    return TransientError(ErrorCode.PARSE_ERROR, "The page arrived damaged")

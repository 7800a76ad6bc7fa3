"""Answer of a site: its body, bounded in bytes while it arrives, packed or not, and what its headers say."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from indexmill.contracts.errors import (
    ErrorCode,
    IndexmillError,
    PermanentError,
    TransientError,
    failure,
    http_code,
)
from indexmill.platform.time import Clock
from indexmill.scraper.ports import Validators

_BOMB_RATIO: Final = 100
"""Text compresses 3 to 20 times; 100 times is an attack."""
_MAX_MEMBERS: Final = 16
_GZIP: Final = 31
_MAGIC: Final = b"\x1f\x8b"
_LONGEST_PAUSE_S: Final = 31 * 86_400
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429})
_STATUS_MESSAGE: Final = {
    206: "Domain returned 206 — a part of the page that was not asked for",
    401: "Domain returned 401 — the page needs a login",
    403: "Domain returned 403 — likely blocked or robots.txt restricted",
    404: "Domain returned 404 — the page does not exist",
    410: "Domain returned 410 — the page is gone",
    429: "Domain returned 429 — too many requests",
}
_ETAG: Final = re.compile(r'(W/)?"[\x21\x23-\x7e]{0,250}"')
_DATE: Final = re.compile(r"[A-Za-z0-9,: +-]{1,64}")


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


def retry_after(headers: Mapping[str, str], clock: Clock) -> int | None:
    """Return the seconds a Retry-After header asks for, as a number or a date; None without one."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:12]), _LONGEST_PAUSE_S)
    try:
        at = parsedate_to_datetime(text)
        seconds = (at - clock.now()).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(0, min(round(seconds), _LONGEST_PAUSE_S))


def status_failure(status: int, retry_after: int | None = None) -> IndexmillError:
    """Return the error for a site that answered `status`, which is not a success."""
    kind = TransientError if status in _TRANSIENT_STATUS or status >= 500 else PermanentError
    message = _STATUS_MESSAGE.get(status, f"Domain returned {status}")
    return kind(http_code(status), message, retry_after=retry_after)


def media_type(header: str) -> tuple[str, str | None]:
    """Return type and charset of a Content-Type header."""
    kind, *parameters = header[:256].split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip():
            return kind.strip().lower(), value.strip().strip("\"'")
    return kind.strip().lower(), None


def validators_of(url: str, headers: Mapping[str, str]) -> Validators:
    """Return an answer's validators; a malformed one counts as none, since it is sent back to the site."""
    etag, date = headers.get("etag", "").strip(), headers.get("last-modified", "").strip()
    return Validators(etag if _ETAG.fullmatch(etag) else None, date if _DATE.fullmatch(date) else None, url)


def conditions_of(known: Validators) -> dict[str, str]:
    """Return the headers of a conditional request; a site that reads both goes by the ETag (RFC 9110)."""
    given = {"If-None-Match": known.etag, "If-Modified-Since": known.last_modified}
    return {name: value for name, value in given.items() if value}

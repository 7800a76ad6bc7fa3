"""Signed tokens: with one a browser reads one job's stream for a while, without its owner's key.

`EventSource` cannot send a header, so that token travels in the URL: it is worth little, and not for long.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

_PURPOSE: Final = b"indexmill.stream.v1\0"
"""Signed too, so that no other use of the same secret makes a valid token."""
_LEAST_SECRET: Final = 32
"""Bytes: as many as the signature has."""
_MAX_TOKEN: Final = 1_000
_NO_TOKEN: Final = (b"", bytes(32))
"""Body and signature that never match."""


@dataclass(frozen=True, slots=True)
class StreamGrant:
    """Content of a token: the caller, the job, and the time of expiry."""

    job_id: str
    caller_id: str
    expires_at: datetime
    """Aware; counted in whole seconds."""


def sign(secret: str, grant: StreamGrant) -> str:
    """Return the token for `grant`: URL-safe text. Raises ValueError for a short secret."""
    return seal(secret, _PURPOSE, [grant.job_id, grant.caller_id, int(grant.expires_at.timestamp())])


def seal(secret: str, purpose: bytes, payload: list[Any]) -> str:
    """Return a token with `payload`, as JSON, for one purpose: URL-safe text. Raises ValueError."""
    body = json.dumps(payload, separators=(",", ":")).encode()
    return f"{_text(body)}.{_text(_mac(secret, purpose, body))}"


class Keys(Protocol):
    """Secrets that tokens are signed with; they rotate."""

    def known(self, *, again: bool = False) -> tuple[str, ...]:
        """Return the current secret and the one before it; `again` reads them now, if not just read so."""
        ...


def verify(keys: Keys, token: str, now: datetime) -> StreamGrant | None:
    """Return what `token` grants, or None when it is not ours, was changed, or has expired at `now`."""
    payload = unseal(keys, _PURPOSE, token)
    if payload is None:
        return None
    job_id, caller_id, expires = payload
    grant = StreamGrant(job_id, caller_id, datetime.fromtimestamp(expires, now.tzinfo))
    return grant if now < grant.expires_at else None


def unseal(keys: Keys, purpose: bytes, token: str) -> list[Any] | None:
    """Return what was sealed for that purpose, or None for what is not ours or was changed."""
    body, mac = _parts(token)
    if not body:
        return None
    # Compared in constant time and before anything in it is read. The signer may know a newer key.
    signed = _signed(keys.known(), purpose, body, mac) or _signed(keys.known(again=True), purpose, body, mac)
    found: list[Any] | None = json.loads(body) if signed else None
    return found


def _signed(secrets: tuple[str, ...], purpose: bytes, body: bytes, mac: bytes) -> bool:
    return any(hmac.compare_digest(mac, _mac(secret, purpose, body)) for secret in secrets)


def _mac(secret: str, purpose: bytes, body: bytes) -> bytes:
    if len(secret.encode()) < _LEAST_SECRET:
        raise ValueError(f"a secret has at least {_LEAST_SECRET} bytes")
    return hmac.new(secret.encode(), purpose + body, hashlib.sha256).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _parts(token: str) -> tuple[bytes, bytes]:
    """Return body and signature."""
    body, _, mac = token.partition(".")
    if len(token) > _MAX_TOKEN:
        return _NO_TOKEN
    try:
        found = _data(body), _data(mac)
    except (ValueError, binascii.Error):
        return _NO_TOKEN
    # The last letter of base64 has spare bits: only our own spelling counts.
    return found if (_text(found[0]), _text(found[1])) == (body, mac) else _NO_TOKEN


def _data(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)

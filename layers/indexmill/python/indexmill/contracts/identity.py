"""Identity: callers, the keys derived from them, and new ids."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.texts import CORPUS_NAME

CALLER_ID: Final = r"^[A-Za-z0-9._:@|+=~-]{1,128}$"
"""Pattern of the ids of callers: Membership's, or hashes of keys."""
DEFAULT_CORPUS: Final = "default"
FREE: Final = "free"
TIERS: Final = (FREE, "pro", "enterprise")
_TIER_ALIASES: Final = {"premium": "pro"}
_CORPUS_NAME: Final = re.compile(CORPUS_NAME)


@dataclass(frozen=True, slots=True)
class CallerContext:
    """A caller, as Membership describes it. There is no tenant: the caller owns jobs and corpora."""

    caller_id: str
    """sha256(api_key)[:16] until Membership's claims carry a stable one."""
    caller_type: str = "unknown"
    """"user", "service" or "unknown"."""
    tier: str | None = None
    scopes: tuple[str, ...] = ()
    internal: bool = False
    """Whether the key belongs to the system itself, as the authorizer found."""
    raw_claims: dict[str, Any] = field(default_factory=dict)
    key_id: str = ""
    """sha256(api_key)[:16], whatever else the caller is known by; for the audit."""
    alias: str = ""
    """The id that the claims or the key give, where `caller_id` is the caller that it is an alias of."""


def caller_of_claims(claims: Mapping[str, Any]) -> CallerContext:
    """Return the caller that the authorizer passes on: texts, which it checked.

    Raises CallerError(invalid_api_key) for none.
    """
    caller_id = claims.get("caller_id")
    if not caller_id:
        raise CallerError(
            ErrorCode.INVALID_API_KEY,
            "A valid X-API-Key header is required; a stream takes a valid token too.",
        )
    raw: dict[str, Any] = {}
    if limits := claims.get("rate_limits"):
        raw["rate_limits"] = json.loads(limits)
    if claims.get("token") == "true":
        raw["token"] = True
    return CallerContext(
        caller_id=str(caller_id),
        caller_type=str(claims.get("caller_type", "unknown")),
        tier=claims.get("tier") or None,
        scopes=tuple(str(claims.get("scopes", "")).split()),
        internal=str(claims.get("internal", "false")) == "true",
        raw_claims=raw,
        key_id=str(claims.get("key_id", "")),
        alias=str(claims.get("alias", "")),
    )


def new_id() -> str:
    """Return a random UUID in its canonical form, for jobs, messages and batches."""
    return str(uuid.uuid4())


def tier_of(name: str | None) -> str:
    """Return the tier for Membership's name of it; an unknown or missing one is free."""
    tier = (name or FREE).lower()
    tier = _TIER_ALIASES.get(tier, tier)
    return tier if tier in TIERS else FREE


def key_hash(api_key: str) -> str:
    """Return the 16 hex digits that identify a key; the raw key is never stored or logged."""
    return hashlib.sha256(api_key.encode()).hexdigest()[:16]


def corpus_name(name: str | None, field: str = "body.corpus_name") -> str:
    """Return the corpus a request means: `name` when valid, the default corpus for None.

    Raises CallerError(corpus_name_invalid).
    """
    if name is None:
        return DEFAULT_CORPUS
    if _CORPUS_NAME.fullmatch(name) is None:
        raise CallerError(
            ErrorCode.CORPUS_NAME_INVALID,
            "A corpus name has 1 to 63 lower-case letters, digits and hyphens, and no hyphen in front.",
            field=field,
        )
    return name


def corpus_key(caller_id: str, name: str) -> str:
    """Return the 32 hex digits under which one caller's corpus is kept."""
    return hashlib.sha256(f"{caller_id}\0{name}".encode()).hexdigest()[:32]


class CorpusIsolation(StrEnum):
    """Callers that a corpus is shared with."""

    CALLER = "caller"
    """The caller who made it. Another one's corpus of the same name is another corpus."""
    SHARED = "shared"
    """Every caller; jobs are their caller's all the same."""

    def key(self, caller_id: str, name: str) -> str:
        """Return the key of the corpus that the caller means by `name`; no caller's id is empty."""
        return corpus_key(caller_id if self is CorpusIsolation.CALLER else "", name)


def document_id(key: str, canonical_url: str) -> str:
    """Return the id of a document: the same URL in the same corpus is the same document."""
    return hashlib.sha256(f"{key}\0{canonical_url}".encode()).hexdigest()

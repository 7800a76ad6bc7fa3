"""Callers: identity, ids derived from it, quotas of tiers and their use; types of strings in requests."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from indexmill.contracts.errors import CallerError, ErrorCode

MAX_URL_LENGTH: Final = 2048
CORPUS_NAME: Final = "[a-z0-9][a-z0-9-]{0,62}"
"""A regular expression."""
MAX_ID_LENGTH: Final = 100
MAX_TITLE_LENGTH: Final = 1000
_CONTROL: Final = re.compile("[\\x00-\\x1f\\x7f\ud800-\udfff\ufffe\uffff]")
_NOT_IN_DOCUMENTS: Final = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f\ud800-\udfff\ufffe\uffff]")
"""Beside tab and line ends, which documents have: what SQS, Postgres or a terminal does not take as text."""


def is_plain(text: str) -> bool:
    """Return whether `text` has no control character, unpaired surrogate or noncharacter."""
    return _CONTROL.search(text) is None


def clean(text: str) -> str:
    """Return a document's text with a space for each character that is no text; offsets stay right."""
    return _NOT_IN_DOCUMENTS.sub(" ", text)


_HIDDEN: Final = re.compile(
    "[\u00ad\u034f\u180e\u200b-\u200d\u2060-\u2064\ufeff\U000e0000-\U000e007f"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Characters without width, tags, and those that change the direction of writing."""


def hidden_characters(text: str) -> int:
    """Return how many characters of `text` are invisible: zero-width ones, tags, and bidi controls."""
    return 0 if text.isascii() else len(_HIDDEN.findall(text))


def _plain(text: str) -> str:
    if not is_plain(text):
        raise ValueError("Control characters are not allowed here.")
    return text


def _short_enough(url: str) -> str:
    if len(url) > MAX_URL_LENGTH:
        raise PydanticCustomError(
            ErrorCode.URL_INVALID.value, "A URL has at most {most} characters.", {"most": MAX_URL_LENGTH}
        )
    return url


PlainText = Annotated[str, AfterValidator(_plain)]
Identifier = Annotated[PlainText, Field(min_length=1, max_length=MAX_ID_LENGTH)]
"""A name of something: of a job, a message, a batch, a code."""
DocumentText = Annotated[str, AfterValidator(clean)]
Title = Annotated[DocumentText, Field(max_length=MAX_TITLE_LENGTH)]
UrlText = Annotated[
    str, Field(min_length=1, json_schema_extra={"maxLength": MAX_URL_LENGTH}), AfterValidator(_short_enough)
]
"""What a URL is compared with; too long a one is `url_invalid`."""
Url = Annotated[UrlText, Field(json_schema_extra={"pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"})]
"""A URL as it was sent. The rules of platform/security/urls.py decide about the rest."""
CorpusName = Annotated[str, Field(json_schema_extra={"pattern": f"^{CORPUS_NAME}$"})]
"""Another one is `corpus_name_invalid`: see contracts/identity.py."""

CORPUS_ID: Final = "corpus_[0-9a-f]{32}"
"""A regular expression; no name of a corpus has an underscore."""
CorpusRef = Annotated[str, Field(json_schema_extra={"pattern": f"^({CORPUS_NAME}|{CORPUS_ID})$"})]
"""A corpus that is read, by its name or its id."""

Doubt = Literal["login_required", "soft_404"]
"""Why a page with text counts as one without content; its caller may know better."""


def _each_once(doubts: list[Doubt] | None) -> list[Doubt] | None:
    return sorted(set(doubts)) if doubts else None


Accept = Annotated[Annotated[list[Doubt], Field(max_length=2)] | None, AfterValidator(_each_once)]
"""Doubts despite which a page is read, in order; None for none."""


CALLER_ID: Final = r"^[A-Za-z0-9._:@|+=~-]{1,128}$"
"""Pattern of the ids of callers: Membership's, or hashes of keys."""
DEFAULT_CORPUS: Final = "default"
FREE: Final = "free"
TIERS: Final = (FREE, "pro", "enterprise")
_TIER_ALIASES: Final = {"premium": "pro"}
_CORPUS_NAME: Final = re.compile(CORPUS_NAME)


Scope = Literal[
    "chunking:write",
    "embedding:delete",
    "embedding:read",
    "embedding:write",
    "orchestrator:read",
    "orchestrator:write",
    "scraper:write",
]
"""What a key may do where its claims have a list of scopes; every route declares one."""
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
SCOPES_OF_VALUES: Final[Mapping[tuple[str, object], Scope]] = {
    ("job_type", "delete"): "embedding:delete",
}
"""Scopes that a field's value needs beside that of the route, whichever it is: of a request or of a job."""


class MissingScope(CallerError):
    """The key has a list of scopes, and this one is not in it."""

    def __init__(self, scope: Scope, field: str | None = None) -> None:
        """`field` is what needs the scope; None where the whole request does."""
        super().__init__(
            ErrorCode.INSUFFICIENT_SCOPE,
            f"This needs the scope {scope}, which your key does not have.",
            field=field,
            hint="Use a key with that scope, or ask whoever issued this one for it.",
        )
        self.scope = scope


@dataclass(frozen=True, slots=True)
class CallerContext:
    """A caller, as Membership describes it. There is no tenant: the caller owns jobs and corpora."""

    caller_id: str
    """sha256(api_key)[:16] until Membership's claims carry a stable one."""
    caller_type: str = "unknown"
    """"user", "service" or "unknown"."""
    tier: str | None = None
    scopes: tuple[str, ...] | None = None
    """Those of its key, `embedding:*` for all of a service; None without a list: nothing is restricted."""
    internal: bool = False
    """Whether the key belongs to the system itself, as the authorizer found."""
    raw_claims: dict[str, Any] = field(default_factory=dict)
    key_id: str = ""
    """sha256(api_key)[:16], whatever else the caller is known by; for the audit."""
    alias: str = ""
    """The id that the claims or the key give, where `caller_id` is the caller that it is an alias of."""

    def require(self, scope: Scope, field: str | None = None) -> None:
        """Raise MissingScope unless the key has `scope`; an internal key with a list is bound to it too."""
        if self.scopes is not None and not {scope, f"{scope.partition(':')[0]}:*"} & {*self.scopes}:
            raise MissingScope(scope, field)

    def require_values(self, values: Mapping[str, object], place: str = "") -> None:
        """Raise MissingScope where one of the `values`, by field, needs a scope that the key does not have.

        `place` precedes the name of the field in the error: that of a request's body is `body.`.
        """
        for (name, value), scope in SCOPES_OF_VALUES.items():
            if values.get(name) == value:
                self.require(scope, f"{place}{name}" if place else None)


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
        scopes=tuple(json.loads(granted)) if (granted := claims.get("granted_scopes")) is not None else None,
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

    def owner(self, caller_id: str) -> str:
        """Return whose names the caller's corpora have: its own, or those of all callers ('')."""
        return caller_id if self is CorpusIsolation.CALLER else ""

    def key(self, caller_id: str, name: str) -> str:
        """Return the key of the corpus that the caller means by `name`; no caller's id is empty."""
        return corpus_key(self.owner(caller_id), name)


def document_id(key: str, canonical_url: str) -> str:
    """Return the id of a document: the same URL in the same corpus is the same document."""
    return hashlib.sha256(f"{key}\0{canonical_url}".encode()).hexdigest()


WaitReason = Literal[
    "quota_active",
    "quota_hourly",
    "quota_chunks",
    "dependency",
    "domain",
    "domain_failing",
    "paused",
    "capacity",
    "breaker_open",
]

UNLIMITED: Final = "unlimited"


class Quota(BaseModel):
    """Limits of each caller of one tier; None means no limit. Beyond the first four jobs wait."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_active: int | None = Field(default=None, ge=1)
    """Jobs started and not ended."""
    max_per_hour: int | None = Field(default=None, ge=1)
    """Jobs started within any hour."""
    burst: int | None = Field(default=None, ge=1)
    """Jobs started within any minute."""
    chunks_per_day: int | None = Field(default=None, ge=1)
    """Chunks made since midnight UTC: once they are reached, nothing starts before the next midnight."""
    corpus_chunks: int | None = Field(default=None, ge=1)
    """Chunks of one corpus: once it has them, no document is added to it."""
    job_chunks: int | None = Field(default=None, ge=1)
    """Chunks of one job's document; this and the next two are the budget of each of the caller's jobs."""
    job_bytes: int | None = Field(default=None, ge=1)
    """Bytes of the content that one job fetches."""
    job_cost: float | None = Field(default=None, gt=0)
    """US dollars that one job costs, by the table of prices."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `max_active=2,burst=20`, or `unlimited`; what is not named has no limit. Raises ValueError."""
        if text == UNLIMITED:
            return cls()
        parts = [part.partition("=") for part in text.split(",") if part.strip()]
        return cls.model_validate({name.strip(): value.strip() for name, _, value in parts})


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of one caller: jobs in flight and started lately."""

    caller_id: str
    tier: str
    active: int = 0
    in_hour: int = 0
    """Jobs started in the last hour, counted up to the tier's limit or `REMEMBERED`."""
    in_minute: int = 0
    hour_since: datetime | None = None
    """When the first of `in_hour` started."""
    minute_since: datetime | None = None
    newest: datetime | None = None
    """When a job of the caller started last, within the hour."""
    chunks_today: int = 0


@dataclass(frozen=True, slots=True)
class StartQuota:
    """One quota that decides when a caller's jobs start."""

    name: str
    """In GET /limits."""
    reason: WaitReason
    """For which a job waits while it is used up."""
    most: Callable[[Quota], int | None]
    used: Callable[[Usage], int]
    resets_at: Callable[[Usage, datetime], datetime | None] = lambda _usage, _now: None
    """When the use becomes less by itself; None when a job has to end."""
    counts_jobs: bool = True
    """Whether a job that starts uses one of it. One that does not only stops further starts."""

    def is_used_up(self, usage: Usage, quota: Quota) -> bool:
        """Return whether no further job may start."""
        most = self.most(quota)
        return most is not None and self.used(usage) >= most


def _after(since: datetime | None, span: timedelta) -> datetime | None:
    return since + span if since else None


def next_midnight(now: datetime) -> datetime:
    """Return the next midnight UTC."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


START_QUOTAS: Final = (
    StartQuota("active", "quota_active", lambda quota: quota.max_active, lambda usage: usage.active),
    StartQuota(
        "hour",
        "quota_hourly",
        lambda quota: quota.max_per_hour,
        lambda usage: usage.in_hour,
        lambda usage, _now: _after(usage.hour_since, timedelta(hours=1)),
    ),
    StartQuota(
        "minute",
        "quota_hourly",
        lambda quota: quota.burst,
        lambda usage: usage.in_minute,
        lambda usage, _now: _after(usage.minute_since, timedelta(minutes=1)),
    ),
    StartQuota(
        "chunks_today",
        "quota_chunks",
        lambda quota: quota.chunks_per_day,
        lambda usage: usage.chunks_today,
        lambda usage, now: next_midnight(now) if usage.chunks_today else None,
        counts_jobs=False,
    ),
)
"""In the order of GET /limits. Of several that are used up the last one is the reason to wait, until the
first with that reason resets."""

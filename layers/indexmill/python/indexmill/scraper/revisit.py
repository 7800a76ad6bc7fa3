"""A page that was fetched before: whether its site is asked again, and what is said when it is unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from indexmill.contracts.content import Document, Unchanged
from indexmill.contracts.messages import ScrapeTask, Stored
from indexmill.scraper.extract.content import EXTRACTORS
from indexmill.scraper.ports import NOT_MODIFIED, Fetched


@dataclass(frozen=True, slots=True)
class Past:
    """The published version of a document, as its task has it."""

    known: Stored
    current: bool = False
    """Whether today's chunker and model made it."""
    max_age: timedelta | None = None
    """Up to this age its site is not asked."""

    @classmethod
    def of(cls, task: ScrapeTask) -> Past | None:
        """Return that of a task; None for a page that is not known."""
        if task.known is None:
            return None
        max_age = None if task.max_age_s is None else timedelta(seconds=task.max_age_s)
        return cls(task.known, task.current, max_age)

    def is_current(self) -> bool:
        """Return whether the same content would be published as it is."""
        return self.current and self.known.extractor == EXTRACTORS.get(self.known.content_type)

    def is_fresh(self, now: datetime, known_for: timedelta) -> bool:
        """Return whether the site need not be asked."""
        if self.max_age is None or self.known.fetched_at is None:
            return False
        age = now - self.known.fetched_at
        return timedelta() <= age <= self.max_age and is_recent(self.known, now, known_for)


def is_recent(known: Stored, now: datetime, known_for: timedelta) -> bool:
    """Return whether the object with the raw content is there for long enough.

    A time that is still to come, of a clock that was fast, says nothing about the age.
    """
    return known.stored_at is not None and timedelta() <= now - known.stored_at < known_for


def is_same(known: Stored, digest: str, kind: str, charset: str | None) -> bool:
    """Return whether content is read as the known one was: the same bytes, of the same type and charset."""
    return (known.ref.sha256, known.content_type, known.charset) == (digest, kind, charset)


def renewed(known: Stored, page: Fetched) -> Stored:
    """Return the known content as its site described it just now; a 304 may leave validators out."""
    kept = known if page.status == NOT_MODIFIED else None
    return known.model_copy(
        update={
            "final_url": page.final_url,
            "etag": page.validators.etag or (kept.etag if kept else None),
            "last_modified": page.validators.last_modified or (kept.last_modified if kept else None),
            "fetched_at": page.fetched_at,
        }
    )


def unchanged(url: str, known: Stored, why: Unchanged, *, nofollow: bool = False) -> Document:
    """Return the document without text: what is published of it stays."""
    return Document(
        url=url,
        final_url=known.final_url,
        content_type=known.content_type,
        charset=known.charset,
        nofollow=nofollow,
        raw_ref=known.ref,
        raw_stored_at=known.stored_at,
        content_sha256=known.ref.sha256,
        extractor=known.extractor,
        etag=known.etag,
        last_modified=known.last_modified,
        fetched_at=known.fetched_at,
        unchanged=why,
    )

"""Recrawl: stored content of a page, and the document of a page that is unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from indexmill.contracts.content import Document, Unchanged
from indexmill.contracts.messages import ScrapeTask, Stored
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.scraper.extract.content import EXTRACTORS
from indexmill.scraper.ports import NOT_MODIFIED, Fetched, Validators


@dataclass(frozen=True, slots=True)
class StoredPage:
    """Stored content of a page: of its published version, and what to read in place of its site."""

    known: Stored | None = None
    """Content of the published version."""
    current: bool = False
    """Whether today's chunker and model made the published version."""
    max_age: timedelta | None = None
    """Up to this age of the known content the site is not asked."""
    instead: Stored | None = None
    """Read this in place of the site."""

    @classmethod
    def of(cls, task: ScrapeTask) -> StoredPage:
        """Return that of a task."""
        max_age = None if task.max_age_s is None else timedelta(seconds=task.max_age_s)
        return cls(task.known, task.current, max_age, task.stored)

    @property
    def same(self) -> Stored | None:
        """The known content, when its page would be published as it is; None otherwise."""
        known = self.known
        if known is None or not self.current or known.extractor != EXTRACTORS.get(known.content_type):
            return None
        return known

    def fresh(self, now: datetime, known_for: timedelta) -> Stored | None:
        """Return the known content, when the site need not be asked; None otherwise."""
        known = self.known
        if known is None or self.max_age is None or known.fetched_at is None:
            return None
        young = timedelta() <= now - known.fetched_at <= self.max_age
        return known if young and is_recent(known, now, known_for) else None


NOT_STORED: Final = StoredPage()
"""Of a page that is fetched for the first time."""


def kept(stored: Stored, blobs: BlobStore) -> Fetched:
    """Return what was fetched before; what an older release read has no validators, to be fetched whole."""
    today = stored.extractor == EXTRACTORS.get(stored.content_type)
    return Fetched(
        final_url=stored.final_url,
        status=200,
        content_type=stored.content_type,
        charset=stored.charset,
        body=blobs.get(stored.ref),
        validators=Validators(stored.etag, stored.last_modified, stored.final_url) if today else Validators(),
        fetched_at=stored.fetched_at,
    )


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

"""Digests of requests: of a whole one for its idempotency key, and of what one job was asked for."""

from __future__ import annotations

import hashlib
import json
from typing import Final

from pydantic import BaseModel

from indexmill.contracts.http_jobs import SubmitRequest
from indexmill.contracts.messages import Stored

_YOUNGER: Final = (
    *("on_behalf_of", "budget", "content", "max_age", "when_gone", "kind", "crawl", "dry_run"),
    "accept",
)
"""Fields that are younger than kept digests: part of a digest only where they are given."""


def request_digest(request: BaseModel) -> str:
    """Return the digest of the request's content, independent of its formatting."""
    unset = {name for name in _YOUNGER if getattr(request, name, None) is None}
    return hashlib.sha256(request.model_dump_json(exclude=unset).encode()).hexdigest()


def payload_digest(request: SubmitRequest, corpus: str, canonical: str, given: Stored | None) -> str:
    """Return the digest of one job's request, as canonical JSON."""
    payload = {
        "job_type": request.job_type,
        "url": canonical,
        "corpus_name": corpus,
        "priority": request.priority,
        "depends_on": sorted(set(request.depends_on)),
    }
    if given is not None:
        payload["content"] = given.model_dump(mode="json", exclude={"stored_at"})
    if request.budget is not None:
        payload["budget"] = request.budget.model_dump(exclude_none=True)
    if request.max_age is not None:
        payload["max_age"] = request.max_age
    if request.when_gone is not None:
        payload["when_gone"] = request.when_gone
    if request.accept is not None:
        payload["accept"] = request.accept
    if request.kind in ("crawl", "sitemap"):
        payload["kind"] = request.kind
        payload["crawl"] = request.rules.model_dump()
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()

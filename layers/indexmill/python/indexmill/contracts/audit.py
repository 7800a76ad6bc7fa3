"""Names of the audit events; docs/operations.md says when each is written, and with which fields."""

from __future__ import annotations

from typing import Final, Literal, get_args

AuditEvent = Literal[
    "auth_rejected",
    "caller_blocked",
    "caller_linked",
    "caller_unblocked",
    "corpus_searched",
    "internal_rejected",
    "job_canceled",
    "job_completed",
    "job_failed",
    "job_replayed",
    "job_retried",
    "job_submitted",
    "maintenance_changed",
    "rate_limit_hit",
    "stale_callback",
]
EVENTS: Final[tuple[AuditEvent, ...]] = get_args(AuditEvent)

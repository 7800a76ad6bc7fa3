"""Statements behind what callers do with their own jobs."""

from __future__ import annotations

from typing import Final

from indexmill.orchestrator.adapters.job_sql import STATE_COLUMNS

# What a decision about a job takes, then what only the verbs look at.
LOCK_OWN: Final = f"""
SELECT {STATE_COLUMNS}, nextval('generation_seq'),
    failed_stage, error, resume_stage, forced, ended_at
FROM jobs WHERE id = %s AND caller_id = %s FOR UPDATE
"""

# What was not sent yet stays here; what is on its way finds the job failed.
CANCEL: Final = """
WITH job AS (
    UPDATE jobs SET status = 'failed', failed_stage = %(stage)s, error = %(error)s, updated_at = now(),
        ended_at = now(), tries = 0, next_retry_at = NULL, retry_cause = NULL, blocked_by = NULL,
        next_eligible_at = NULL
    WHERE id = %(job_id)s RETURNING id, attempt, job_type, payload_digest
), history AS (
    INSERT INTO job_history (job_id, attempt, from_status, to_status, cause, detail, job_type, payload_digest)
    SELECT id, attempt, %(from)s, 'failed', 'canceled', %(error)s, job_type, payload_digest FROM job
)
UPDATE outbox SET parked_at = now(), last_error = 'canceled'
WHERE job_id = %(job_id)s AND sent_at IS NULL AND parked_at IS NULL
"""

OTHER_AT_WORK: Final = """
SELECT id FROM jobs WHERE document_id = %s AND status NOT IN ('done', 'failed') AND NOT forced LIMIT 1
"""
# Whether somebody else tried to publish the document after this job had ended.
PUBLISHED_SINCE: Final = """
SELECT EXISTS (SELECT FROM documents WHERE document_id = %s AND published IS NOT NULL AND updated_at > %s)
"""
OWN_MESSAGE: Final = "SELECT EXISTS (SELECT FROM outbox WHERE id = %s AND job_id = %s)"

# The message is held until the job is admitted, like that of a new job.
RETRY: Final = """
WITH job AS (
    UPDATE jobs SET status = 'pending', attempt = %(attempt)s, resume_stage = %(stage)s, failed_stage = NULL,
        error = NULL, generation = coalesce(%(generation)s, generation), blocked_by = %(blocked_by)s,
        updated_at = now(), admitted_at = NULL, ended_at = NULL, next_eligible_at = NULL, tries = 0,
        expected_by = NULL, next_retry_at = NULL, retry_cause = NULL
    WHERE id = %(job_id)s RETURNING id, attempt, caller_id, job_type, payload_digest
), history AS (
    INSERT INTO job_history (job_id, attempt, from_status, to_status, cause, job_type, payload_digest)
    SELECT id, attempt, 'failed', 'pending', 'retried', job_type, payload_digest FROM job
), earlier AS (
    UPDATE outbox SET parked_at = now(), last_error = 'retried'
    WHERE job_id = %(job_id)s AND sent_at IS NULL AND parked_at IS NULL
)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
SELECT %(id)s, id, caller_id, attempt, %(stage)s, %(kind)s, %(payload)b::text, 'infinity' FROM job
"""

ORIGINAL: Final = f"""
SELECT {STATE_COLUMNS}, raw_ref, determinism, payload_digest FROM jobs WHERE id = %s AND caller_id = %s
"""
BATCH: Final = """
SELECT status, error->>'code', count(*) FROM jobs WHERE batch_id = %s AND caller_id = %s
GROUP BY status, error->>'code'
"""

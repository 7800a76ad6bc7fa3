"""Statements that let pending jobs start."""

from __future__ import annotations

from typing import Final

from indexmill.orchestrator.adapters.job_sql import CLAIM_S

# A locked job is being admitted, canceled or ended by somebody else right now: skipped, never waited for.
ADMIT: Final = f"""
WITH chosen AS (
    SELECT id FROM jobs WHERE status = 'pending' AND caller_id = ANY(%(callers)s)
        AND blocked_by IS DISTINCT FROM 'dependency'
    ORDER BY created_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), job AS (
    UPDATE jobs SET status = coalesce(resume_stage, %(first)s), admitted_at = now(),
        updated_at = now(), blocked_by = NULL, next_eligible_at = NULL
    FROM chosen WHERE jobs.id = chosen.id
    RETURNING jobs.id, jobs.status, jobs.attempt, jobs.job_type, jobs.payload_digest
), history AS (
    INSERT INTO job_history (job_id, attempt, from_status, to_status, cause, job_type, payload_digest)
    SELECT id, attempt, 'pending', status, 'admitted', job_type, payload_digest FROM job
)
UPDATE outbox SET claimed_until = now() + interval '{CLAIM_S} seconds'
FROM job WHERE outbox.job_id = job.id AND outbox.attempt = job.attempt AND outbox.stage = job.status
    AND outbox.claimed_until = 'infinity'
RETURNING outbox.id, outbox.job_id, outbox.attempt, outbox.stage, outbox.kind, outbox.payload, outbox.tries,
    outbox.caller_id
"""

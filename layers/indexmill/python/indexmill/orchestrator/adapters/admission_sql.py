"""Statements that let pending jobs start, and that tell what they wait for."""

from __future__ import annotations

from typing import Final

from indexmill.orchestrator.adapters.job_sql import CLAIM_S

_IN_LINE: Final = "status = 'pending' AND blocked_by IS DISTINCT FROM 'dependency'"

# Functions of the database (sql/0005_admission.sql), so that they are planned once per connection.
LOOK: Final = """
SELECT (counted).*, (everybody).*, ids, priorities, since
FROM lines_to_admit(%(callers)s::text[], %(done)s::text[], %(daily)s::text[], %(tiers)s::text[],
                    %(max_active)s::int[], %(remembered)s::int[], %(window)s, %(most)s)
"""
USAGE: Final = """
SELECT own.*, everybody.*, (SELECT count(*)::int FROM (
    SELECT FROM jobs WHERE status = 'pending' AND caller_id = %(caller_id)s LIMIT %(most)s
) AS pending)
FROM usage_of_caller(%(caller_id)s, %(tier)s, %(max_active)s, %(remembered)s, %(window)s) AS own,
    usage_of_everybody(%(window)s) AS everybody
"""

# A locked job is being admitted, canceled or ended by somebody else right now: skipped, never waited for.
START: Final = f"""
WITH chosen AS (
    SELECT id FROM jobs WHERE id = ANY(%(ids)s) AND {_IN_LINE} ORDER BY id FOR UPDATE SKIP LOCKED
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

# A mark is renewed when its job starts, so that callers who wait for capacity take turns at being looked at.
MARK: Final = f"""
UPDATE jobs SET blocked_by = 'capacity', updated_at = now() WHERE id IN (
    SELECT id FROM jobs WHERE id = ANY(%(ids)s) AND {_IN_LINE} AND blocked_by IS NULL FOR UPDATE SKIP LOCKED
)
"""
UNMARK: Final = """
UPDATE jobs SET blocked_by = NULL WHERE id IN (
    SELECT id FROM jobs WHERE status = 'pending' AND blocked_by = 'capacity' AND caller_id = ANY(%(callers)s)
    FOR UPDATE SKIP LOCKED
)
"""

# One step through the index per caller, however long their lines are.
WAITING_CALLERS: Final = f"""
WITH RECURSIVE caller AS (
    (SELECT caller_id FROM jobs WHERE {_IN_LINE} ORDER BY caller_id LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.caller_id FROM jobs WHERE {_IN_LINE} AND jobs.caller_id > caller.caller_id
            ORDER BY jobs.caller_id LIMIT 1)
    FROM caller WHERE caller.caller_id IS NOT NULL
)
SELECT caller_id FROM caller WHERE caller_id IS NOT NULL LIMIT 10000
"""

POSITION: Final = """
SELECT asked.id, count(*)::int, asked.tier FROM jobs AS asked JOIN jobs AS own
    ON own.caller_id = asked.caller_id AND (own.turn, own.id) <= (asked.turn, asked.id)
    AND own.status = 'pending' AND own.blocked_by IS DISTINCT FROM 'dependency'
WHERE asked.caller_id = %s AND asked.id = ANY(%s) AND asked.status = 'pending'
    AND asked.blocked_by IS DISTINCT FROM 'dependency'
GROUP BY asked.id, asked.tier
"""
POSITIONS: Final = f"""
SELECT id, position::int, tier FROM (
    SELECT id, tier, row_number() OVER (ORDER BY turn, id) AS position FROM jobs
    WHERE {_IN_LINE} AND caller_id = %s
) AS line WHERE id = ANY(%s)
"""
BLOCKERS: Final = """
SELECT job_dependencies.job_id, array_agg(depends_on ORDER BY depends_on)
FROM job_dependencies JOIN jobs ON jobs.id = depends_on AND jobs.status <> 'done'
WHERE job_id = ANY(%s) GROUP BY job_dependencies.job_id
"""
# Jobs that were done last, by an index that is there anyway.
PACE: Final = """
WITH last AS MATERIALIZED (
    SELECT ended_at, admitted_at, extract(epoch FROM ended_at - admitted_at)::float8 AS took
    FROM jobs WHERE status = 'done' ORDER BY updated_at DESC LIMIT %s
)
SELECT (SELECT percentile_cont(0.75) WITHIN GROUP (ORDER BY took) FROM last), coalesce(
    sum(extract(epoch FROM least(a.ended_at, b.ended_at) - greatest(a.admitted_at, b.admitted_at)))::float8
        / greatest((SELECT sum(took) FROM last), 0.01), 1)
FROM last a JOIN last b ON a.ended_at > b.admitted_at AND b.ended_at > a.admitted_at
"""

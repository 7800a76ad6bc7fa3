"""Statements about jobs that wait for other jobs."""

from __future__ import annotations

from typing import Final

# Locked until we are through, so that none of them ends without seeing who waits for it.
KNOWN: Final = """
WITH known AS (SELECT id FROM jobs WHERE id = ANY(%s) AND caller_id = %s ORDER BY id FOR UPDATE)
UPDATE jobs SET has_dependents = true FROM known WHERE jobs.id = known.id RETURNING jobs.id, jobs.status
"""
CONNECT: Final = """
INSERT INTO job_dependencies (job_id, depends_on)
SELECT job_id, depends_on FROM unnest(%s::text[]) AS a(job_id), unnest(%s::text[]) AS b(depends_on)
ON CONFLICT DO NOTHING
"""
BLOCK: Final = "UPDATE jobs SET blocked_by = 'dependency' WHERE id = ANY(%s)"
# Edges lead to older jobs only, so there is no circle; should there be one all the same, it is found here.
CIRCLE: Final = """
WITH RECURSIVE reached AS (
    SELECT depends_on FROM job_dependencies WHERE job_id = ANY(%(jobs)s)
    UNION
    SELECT edge.depends_on FROM reached JOIN job_dependencies edge ON edge.job_id = reached.depends_on
)
SELECT EXISTS (SELECT FROM reached WHERE depends_on = ANY(%(jobs)s))
"""
# Locked, so that a job that may start now is not counted by two others of which each is its last.
UNMET: Final = """
SELECT jobs.id, jobs.status FROM jobs
WHERE id IN (SELECT depends_on FROM job_dependencies WHERE job_id = %s) AND status <> 'done'
ORDER BY id FOR UPDATE
"""

# Everybody who waits for one of these, and for those again. Locked before anybody counts: of two
# dependencies that end at the same time the later one sees both ends.
LOCK_WAITING: Final = """
WITH RECURSIVE waiting AS (
    SELECT job_id FROM job_dependencies WHERE depends_on = ANY(%s)
    UNION
    SELECT edge.job_id FROM waiting JOIN job_dependencies edge ON edge.depends_on = waiting.job_id
)
SELECT id FROM jobs WHERE id IN (SELECT job_id FROM waiting) AND status = 'pending' ORDER BY id FOR UPDATE
"""
# A job that waits for a failed one fails, and so do those that wait for it.
FAIL_WAITING: Final = """
WITH RECURSIVE lost AS (
    SELECT edge.job_id, edge.depends_on FROM job_dependencies edge
    JOIN jobs dependency ON dependency.id = edge.depends_on AND dependency.status = 'failed'
    JOIN jobs waiting ON waiting.id = edge.job_id AND waiting.status = 'pending'
    WHERE edge.job_id = ANY(%(waiting)s)
    UNION
    SELECT edge.job_id, edge.depends_on FROM lost
    JOIN job_dependencies edge ON edge.depends_on = lost.job_id
    JOIN jobs waiting ON waiting.id = edge.job_id AND waiting.status = 'pending'
), one AS (
    SELECT job_id, min(depends_on) AS depends_on FROM lost GROUP BY job_id
), job AS (
    UPDATE jobs SET status = 'failed', failed_stage = coalesce(resume_stage, %(first)s), blocked_by = NULL,
        next_eligible_at = NULL, updated_at = now(), ended_at = now(),
        error = jsonb_build_object(
            'stage', coalesce(resume_stage, %(first)s), 'code', 'dependency_failed', 'at', now(),
            'message', 'Job ' || one.depends_on || ', which this one depends on, failed.')
    FROM one WHERE jobs.id = one.job_id
    RETURNING jobs.id, jobs.attempt, jobs.error, jobs.job_type, jobs.payload_digest
), history AS (
    INSERT INTO job_history (job_id, attempt, from_status, to_status, cause, detail, job_type, payload_digest)
    SELECT id, attempt, 'pending', 'failed', 'dependency failed', error, job_type, payload_digest FROM job
), parked AS (
    UPDATE outbox SET parked_at = now(), last_error = 'dependency failed' FROM job
    WHERE outbox.job_id = job.id AND outbox.sent_at IS NULL AND outbox.parked_at IS NULL
)
SELECT id FROM job
"""
RELEASE: Final = """
UPDATE jobs SET blocked_by = NULL, updated_at = now()
WHERE id = ANY(%s) AND status = 'pending' AND blocked_by = 'dependency' AND NOT EXISTS (
    SELECT FROM job_dependencies edge JOIN jobs dependency ON dependency.id = edge.depends_on
    WHERE edge.job_id = jobs.id AND dependency.status <> 'done')
"""

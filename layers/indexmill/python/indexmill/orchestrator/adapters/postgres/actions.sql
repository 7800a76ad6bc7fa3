-- name: lock_job
SELECT {{state_columns}}, nextval('generation_seq') AS next_generation,
    failed_stage, error, resume_stage, forced, ended_at
FROM jobs WHERE id = %(job_id)s AND caller_id = %(caller_id)s FOR UPDATE

-- A message that was not sent yet is parked; one that was sent finds the job failed.
-- name: cancel_job
WITH job AS (
    UPDATE jobs SET status = 'failed', failed_stage = %(stage)s, error = %(error)s, updated_at = now(),
        ended_at = now(), tries = 0, next_retry_at = NULL, retry_cause = NULL, blocked_by = NULL,
        next_eligible_at = NULL
    WHERE id = %(job_id)s RETURNING id, attempt, job_type, payload_digest
), transition AS (
    SELECT id AS job_id, attempt, %(from_status)s AS from_status, 'failed' AS to_status, 'canceled' AS cause,
        %(error)s::jsonb AS detail, {{no_stage_work}}, job_type, payload_digest
    FROM job
), history AS (
    {{insert_history}}
)
UPDATE outbox SET parked_at = now(), last_error = 'canceled'
WHERE job_id = %(job_id)s AND sent_at IS NULL AND parked_at IS NULL

-- name: has_message
SELECT EXISTS (SELECT FROM outbox WHERE id = %(message_id)s AND job_id = %(job_id)s) AS found

-- name: published_since
SELECT EXISTS (
    SELECT FROM documents WHERE document_id = %(document_id)s AND published IS NOT NULL AND updated_at > %(at)s
) AS found

-- The message waits for the job's admission, like that of a new job.
-- name: restart_job
WITH job AS (
    UPDATE jobs SET status = 'pending', attempt = %(attempt)s, resume_stage = %(stage)s, failed_stage = NULL,
        error = NULL, generation = coalesce(%(generation)s, generation), blocked_by = %(blocked_by)s,
        updated_at = now(), admitted_at = NULL, ended_at = NULL, next_eligible_at = NULL, tries = 0,
        expected_by = NULL, next_retry_at = NULL, retry_cause = NULL
    WHERE id = %(job_id)s RETURNING id, attempt, caller_id, job_type, payload_digest
), transition AS (
    SELECT id AS job_id, attempt, 'failed' AS from_status, 'pending' AS to_status, 'retried' AS cause,
        NULL::jsonb AS detail, {{no_stage_work}}, job_type, payload_digest
    FROM job
), history AS (
    {{insert_history}}
), earlier AS (
    UPDATE outbox SET parked_at = now(), last_error = 'retried'
    WHERE job_id = %(job_id)s AND sent_at IS NULL AND parked_at IS NULL
)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
SELECT %(id)s, id, caller_id, attempt, %(stage)s, 'queue', %(payload)b::text, {{until_admission}} FROM job

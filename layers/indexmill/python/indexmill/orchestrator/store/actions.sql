-- Statements of job actions.

-- Deleted, or about to be.
-- The key of a deleted corpus is not used again, so all of its jobs are deleted: also those that were submitted meanwhile.
-- fragment: is_deleted
(deleted_at IS NOT NULL OR EXISTS (
    SELECT FROM tombstones WHERE tombstones.id IN (jobs.document_id, jobs.corpus_key)
        AND (at >= jobs.created_at OR tombstones.id = jobs.corpus_key))) AS deleted

-- name: lock_job
SELECT {{state_columns}}, next_generation() AS next_generation,
    failed_stage, error, resume_stage, forced, ended_at, raw_ref, replay_of, {{is_deleted}}
FROM jobs WHERE id = %(job_id)s AND caller_id = %(caller_id)s FOR UPDATE

-- Jobs of a batch that have not ended.
-- name: lock_batch
SELECT {{state_columns}}, next_generation() AS next_generation,
    failed_stage, error, resume_stage, forced, ended_at, raw_ref, replay_of, {{is_deleted}}
FROM jobs WHERE batch_id = %(batch_id)s AND caller_id = %(caller_id)s AND status NOT IN ('done', 'failed')
ORDER BY id LIMIT %(most)s FOR UPDATE

-- A message that was not sent yet is parked; one that was sent finds the job failed.
-- name: cancel_jobs
WITH canceled AS (
    SELECT * FROM unnest(%(job_ids)s::text[], %(statuses)s::text[], %(errors)s::jsonb[]) AS t(job_id, status, error)
), job AS (
    UPDATE jobs SET status = 'failed', failed_stage = canceled.error->>'stage', error = canceled.error,
        updated_at = now(), ended_at = now(), tries = 0, next_retry_at = NULL, retry_cause = NULL, blocked_by = NULL,
        next_eligible_at = NULL, request_id = coalesce(%(request_id)s, request_id)
    FROM canceled WHERE jobs.id = canceled.job_id
    RETURNING jobs.id, jobs.attempt, canceled.status, canceled.error, job_type, payload_digest, request_id
), transition AS (
    SELECT id AS job_id, attempt, status AS from_status, 'failed' AS to_status, 'canceled' AS cause,
        error AS detail, {{no_work}}, job_type, payload_digest, request_id
    FROM job
), history AS (
    {{insert_history}}
)
UPDATE outbox SET parked_at = now(), last_error = 'canceled'
WHERE job_id = ANY(%(job_ids)s) AND sent_at IS NULL AND parked_at IS NULL

-- name: has_message
SELECT EXISTS (SELECT FROM outbox WHERE id = %(message_id)s AND job_id = %(job_id)s) AS found

-- name: published_since
SELECT EXISTS (
    SELECT FROM documents WHERE document_id = %(document_id)s AND published IS NOT NULL AND updated_at > %(at)s
) AS found

-- name: kept_payloads
SELECT DISTINCT ON (stage) stage, payload FROM outbox WHERE job_id = %(job_id)s
ORDER BY stage, attempt DESC, created_at DESC

-- The message waits for the job's admission, like that of a new job. The start of the attempt before stays in the
-- quotas.
-- name: restart_job
WITH started AS (
    INSERT INTO earlier_starts (job_id, attempt, caller_id, started_at)
    SELECT id, attempt, caller_id, admitted_at FROM jobs
    WHERE id = %(job_id)s AND admitted_at > now() - interval '1 hour'
    ON CONFLICT DO NOTHING
), job AS (
    UPDATE jobs SET status = 'pending', attempt = %(attempt)s, resume_stage = %(stage)s, failed_stage = NULL,
        error = NULL, generation = coalesce(%(generation)s, generation), blocked_by = %(blocked_by)s,
        updated_at = now(), admitted_at = NULL, ended_at = NULL, next_eligible_at = NULL, tries = 0,
        expected_by = NULL, next_retry_at = NULL, retry_cause = NULL, page_change = nullif(page_change, 'removed'),
        duplicate_of = CASE WHEN %(stage)s <> %(first)s THEN duplicate_of END,
        request_id = coalesce(%(request_id)s, request_id)
    WHERE id = %(job_id)s RETURNING id, attempt, caller_id, job_type, payload_digest, request_id
), transition AS (
    SELECT id AS job_id, attempt, 'failed' AS from_status, 'pending' AS to_status, 'retried' AS cause,
        NULL::jsonb AS detail, {{no_work}}, job_type, payload_digest, request_id
    FROM job
), history AS (
    {{insert_history}}
), earlier AS (
    UPDATE outbox SET parked_at = now(), last_error = 'retried'
    WHERE job_id = %(job_id)s AND sent_at IS NULL AND parked_at IS NULL
)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
SELECT %(id)s, id, caller_id, attempt, %(stage)s, 'queue', %(payload)b::text, {{until_admission}} FROM job

-- name: original
SELECT {{job_columns}}, caller_id, corpus_key, canonical_url, raw_ref, determinism, payload_digest, previous, accept, {{is_deleted}}
FROM jobs WHERE id = %(job_id)s AND caller_id = %(caller_id)s

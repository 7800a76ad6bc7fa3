-- A key counts for a day. A concurrent second submit waits here until the first one has committed.
-- name: take_key
INSERT INTO idempotency_keys (caller_id, key, body_sha256, answer)
VALUES (%(caller_id)s, %(key)s, %(digest)s, '{}')
ON CONFLICT (caller_id, key) DO UPDATE
    SET body_sha256 = excluded.body_sha256, answer = excluded.answer, created_at = now()
    WHERE idempotency_keys.created_at <= now() - interval '24 hours'
RETURNING key

-- name: kept_answer
SELECT body_sha256 AS digest, answer::text AS answer FROM idempotency_keys
WHERE caller_id = %(caller_id)s AND key = %(key)s

-- name: keep_answer
UPDATE idempotency_keys SET answer = %(answer)s::jsonb WHERE caller_id = %(caller_id)s AND key = %(key)s

-- Payloads are sent in binary: as text, each character of a document would be looked at for quoting.
-- A document that another job is in flight for is left out: the unique index jobs_in_flight decides.
-- name: insert_jobs
WITH new AS (
    SELECT * FROM unnest(%(job_ids)s::text[], %(urls)s::text[], %(canonical)s::text[],
                         %(documents)s::text[], %(outbox_ids)s::text[], %(payloads)b::text[],
                         %(priorities)s::int[], %(forced)s::boolean[], %(digests)s::text[],
                         %(expected)s::timestamptz[])
        AS t(job_id, url, canonical_url, document_id, outbox_id, payload, priority, forced, payload_digest,
             expected_by)
), corpus AS (
    INSERT INTO corpora (corpus_key, caller_id, name)
    SELECT %(corpus_key)s, %(caller_id)s, %(corpus_name)s
    WHERE NOT EXISTS (SELECT FROM corpora WHERE corpus_key = %(corpus_key)s)
    ON CONFLICT (corpus_key) DO NOTHING
), job AS (
    INSERT INTO jobs (id, status, caller_id, url, corpus_name, batch_id, corpus_key, document_id,
                      canonical_url, tier, job_type, priority, forced, payload_digest, replay_of,
                      expected_by)
    SELECT job_id, 'pending', %(caller_id)s, url, %(corpus_name)s, %(batch_id)s, %(corpus_key)s,
           document_id, canonical_url, %(tier)s, %(job_type)s, priority, forced, payload_digest,
           %(replay_of)s, expected_by
    FROM new ORDER BY document_id ON CONFLICT DO NOTHING RETURNING id
), transition AS (
    SELECT new.job_id, 1 AS attempt, NULL::text AS from_status, 'pending' AS to_status, 'submitted' AS cause,
        NULL::jsonb AS detail, {{no_stage_work}}, %(job_type)s AS job_type, new.payload_digest
    FROM new JOIN job ON job.id = new.job_id
), history AS (
    {{insert_history}}
), message AS (
    INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
    SELECT outbox_id, job_id, %(caller_id)s, 1, %(first)s, 'queue', payload, {{until_admission}}
    FROM new JOIN job ON job.id = new.job_id
)
SELECT id FROM job

-- The job in flight for each document; or the job itself, when a lost answer made the work run twice.
-- name: jobs_in_flight
SELECT document_id, id, status, expected_by FROM jobs
WHERE document_id = ANY(%(documents)s)
    AND (status NOT IN ('done', 'failed') AND NOT forced OR id = ANY(%(job_ids)s))

-- Locked until the commit, so that none of them ends without seeing its new dependents.
-- name: lock_dependencies
WITH known AS (
    SELECT id FROM jobs WHERE id = ANY(%(job_ids)s) AND caller_id = %(caller_id)s ORDER BY id FOR UPDATE
)
UPDATE jobs SET has_dependents = true FROM known WHERE jobs.id = known.id RETURNING jobs.id, jobs.status

-- name: insert_dependencies
INSERT INTO job_dependencies (job_id, depends_on)
SELECT job_id, depends_on
FROM unnest(%(job_ids)s::text[]) AS a(job_id), unnest(%(depends_on)s::text[]) AS b(depends_on)
ON CONFLICT DO NOTHING

-- name: block_jobs
UPDATE jobs SET blocked_by = 'dependency' WHERE id = ANY(%(job_ids)s)

-- Edges lead to older jobs only, so there is no cycle; should there be one all the same, it is found here.
-- name: has_cycle
WITH RECURSIVE reached AS (
    SELECT depends_on FROM job_dependencies WHERE job_id = ANY(%(job_ids)s)
    UNION
    SELECT edge.depends_on FROM reached JOIN job_dependencies edge ON edge.job_id = reached.depends_on
)
SELECT EXISTS (SELECT FROM reached WHERE depends_on = ANY(%(job_ids)s)) AS found

-- Locked, so that a job that may start now is not counted by two others of which each is its last.
-- name: unmet_dependencies
SELECT jobs.id, jobs.status FROM jobs
WHERE id IN (SELECT depends_on FROM job_dependencies WHERE job_id = %(job_id)s) AND status <> 'done'
ORDER BY id FOR UPDATE

-- Pending jobs that wait for these, directly or through others. Locked before they are counted: of two
-- dependencies that end at the same time the later one sees both ends.
-- name: lock_dependents
WITH RECURSIVE waiting AS (
    SELECT job_id FROM job_dependencies WHERE depends_on = ANY(%(job_ids)s)
    UNION
    SELECT edge.job_id FROM waiting JOIN job_dependencies edge ON edge.depends_on = waiting.job_id
)
SELECT id FROM jobs WHERE id IN (SELECT job_id FROM waiting) AND status = 'pending' ORDER BY id FOR UPDATE

-- A job that depends on a failed one fails, and so do those that depend on it.
-- name: fail_dependents
WITH RECURSIVE lost AS (
    SELECT edge.job_id, edge.depends_on FROM job_dependencies edge
    JOIN jobs dependency ON dependency.id = edge.depends_on AND dependency.status = 'failed'
    JOIN jobs waiting ON waiting.id = edge.job_id AND waiting.status = 'pending'
    WHERE edge.job_id = ANY(%(job_ids)s)
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
), transition AS (
    SELECT id AS job_id, attempt, 'pending' AS from_status, 'failed' AS to_status, 'dependency failed' AS cause,
        error AS detail, {{no_stage_work}}, job_type, payload_digest
    FROM job
), history AS (
    {{insert_history}}
), parked AS (
    UPDATE outbox SET parked_at = now(), last_error = 'dependency failed' FROM job
    WHERE outbox.job_id = job.id AND outbox.sent_at IS NULL AND outbox.parked_at IS NULL
)
SELECT id FROM job

-- name: unblock_jobs
UPDATE jobs SET blocked_by = NULL, updated_at = now()
WHERE id = ANY(%(job_ids)s) AND status = 'pending' AND blocked_by = 'dependency' AND NOT EXISTS (
    SELECT FROM job_dependencies edge JOIN jobs dependency ON dependency.id = edge.depends_on
    WHERE edge.job_id = jobs.id AND dependency.status <> 'done')

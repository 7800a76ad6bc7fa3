-- Statements of the outbox and of dead letters, and the fragments that several acts use.

-- Every transition is written by this one statement: what includes it has a CTE `transition` of these columns.
-- A trigger computes the hash chain (job_history_chain), so the order of rows is the order of the chain.
-- fragment: insert_history
INSERT INTO job_history (job_id, attempt, from_status, to_status, cause, detail, tries, worker, elapsed_ms,
                         spent, job_type, payload_digest, request_id)
SELECT job_id, attempt, from_status, to_status, cause, detail, tries, worker, elapsed_ms, spent, job_type,
    payload_digest, request_id
FROM transition

-- Of a transition that no stage's result caused.
-- fragment: no_stage_work
NULL::int AS tries, NULL::text AS worker, NULL::int AS elapsed_ms

-- Of one that costs nothing worth a line on its job's receipt.
-- fragment: no_work
{{no_stage_work}}, NULL::jsonb AS spent

-- fragment: in_queue
status = 'pending' AND (blocked_by IS NULL OR blocked_by = 'capacity')

-- A message waits for its job's admission. The previous release knows that as claimed_until = 'infinity', and
-- the column `awaiting_admission` is derived from it as long as that release may run beside this one.
-- fragment: until_admission
'infinity'

-- fragment: state_columns
id, status, attempt, caller_id, corpus_name, corpus_key, document_id, canonical_url, url, title,
    generation, has_dependents, budget, previous, mark_stale, accept, batch_id, kind, job_type,
    determinism->>'content_sha256' AS content_sha256, metadata, determinism->'page' AS page

-- The name that the job's corpus has now. A job keeps the one that it was submitted with.
-- fragment: current_name
coalesce((SELECT name FROM corpora WHERE corpora.corpus_key = jobs.corpus_key), jobs.corpus_name)

-- fragment: job_columns
id, status, url, {{current_name}} AS corpus_name, failed_stage, error, created_at, updated_at, attempt, batch_id, document_id,
    chunk_count, title, tries, next_retry_at, priority, job_type, replay_of, expected_by, request_id, budget,
    page_change, unchanged, kind, retry_cause, last_error, determinism->'notes' AS notes, duplicate_of,
    metadata, determinism->>'searchable_at' AS searchable_at, determinism->'generation' AS generation,
    determinism->'chunks' AS chunks, deleted_at

-- name: claim
UPDATE outbox SET claimed_until = now() + interval '{{claim_s}} seconds'
WHERE id IN (
    SELECT id FROM outbox
    WHERE sent_at IS NULL AND parked_at IS NULL AND NOT awaiting_admission AND claimed_until <= now()
    ORDER BY claimed_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
RETURNING id, job_id, attempt, stage, payload, tries, caller_id

-- name: mark_sent
UPDATE outbox SET sent_at = now(), last_error = NULL WHERE id = ANY(%(ids)s)

-- name: mark_failed
UPDATE outbox SET tries = tries + %(counted)s, last_error = %(error)s,
    claimed_until = now() + interval '10 seconds',
    parked_at = CASE WHEN tries + %(counted)s >= {{park_after}} THEN now() END
WHERE id = ANY(%(ids)s) AND sent_at IS NULL

-- name: record_dead_letter
-- A row of the same receive is this delivery's own: the statement is repeated when its answer was lost.
WITH kept AS (
    INSERT INTO dead_letters (queue, body, receive_count, reason, cause, job_id, stage, attempt, message_id,
                              body_ref, attributes, source_id)
    VALUES (%(queue)s, %(body)s, %(receive_count)s, %(reason)s, %(cause)s, %(job_id)s, %(stage)s, %(attempt)s,
            %(message_id)s, %(body_ref)s, %(attributes)s, %(source_id)s)
    ON CONFLICT (queue, source_id) DO NOTHING
    RETURNING id
)
SELECT EXISTS (SELECT FROM kept) OR EXISTS (
    SELECT FROM dead_letters
    WHERE queue = %(queue)s AND source_id = %(source_id)s AND receive_count = %(receive_count)s
) AS found

-- name: claim
UPDATE outbox SET claimed_until = now() + interval '{{claim_s}} seconds'
WHERE id IN (
    SELECT id FROM outbox
    WHERE sent_at IS NULL AND parked_at IS NULL AND NOT awaiting_admission AND claimed_until <= now()
    ORDER BY claimed_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
RETURNING id, job_id, attempt, stage, kind, payload, tries, caller_id

-- name: take_over
UPDATE outbox SET claimed_until = now() + interval '{{claim_s}} seconds'
WHERE id = ANY(%(ids)s) AND sent_at IS NULL AND parked_at IS NULL AND NOT awaiting_admission
RETURNING id, job_id, attempt, stage, kind, payload, tries, caller_id

-- name: left_behind
UPDATE outbox SET claimed_until = now() + interval '{{claim_s}} seconds'
WHERE job_id = ANY(%(ids)s) AND sent_at IS NULL AND parked_at IS NULL AND last_error IS NULL
    AND claimed_until < now() + interval '27 seconds'
RETURNING id, job_id, attempt, stage, kind, payload, tries, caller_id

-- name: mark_sent
UPDATE outbox SET sent_at = now(), last_error = NULL WHERE id = ANY(%(ids)s)

-- A call is the stage's work itself: its job tells until when it waits. A job that is just being moved on is
-- left alone, and so nobody waits for anybody here.
-- name: mark_failed
WITH given_back AS (
    UPDATE outbox SET tries = tries + %(counted)s, last_error = %(error)s,
        claimed_until = now() + interval '10 seconds',
        parked_at = CASE WHEN tries + %(counted)s >= {{park_after}} AND kind = 'queue' THEN now() END
    WHERE id = ANY(%(ids)s) AND sent_at IS NULL
    RETURNING job_id, attempt, stage, kind, tries, claimed_until
), waiting AS (
    SELECT jobs.id, given_back.tries, given_back.claimed_until
    FROM given_back JOIN jobs ON jobs.id = given_back.job_id AND jobs.attempt = given_back.attempt
        AND jobs.status = given_back.stage
    WHERE given_back.kind = 'call' ORDER BY jobs.id FOR UPDATE OF jobs SKIP LOCKED
)
UPDATE jobs SET tries = waiting.tries, next_retry_at = waiting.claimed_until, retry_cause = %(error)s,
    updated_at = now()
FROM waiting WHERE jobs.id = waiting.id

-- name: record_dead_letter
INSERT INTO dead_letters (queue, body, receive_count, reason, cause, job_id, stage, attempt, message_id,
                          body_ref, attributes, source_id)
VALUES (%(queue)s, %(body)s, %(receive_count)s, %(reason)s, %(cause)s, %(job_id)s, %(stage)s, %(attempt)s,
        %(message_id)s, %(body_ref)s, %(attributes)s, %(source_id)s)
ON CONFLICT (queue, source_id) DO NOTHING

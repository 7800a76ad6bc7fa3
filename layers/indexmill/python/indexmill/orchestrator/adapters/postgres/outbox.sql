-- name: claim
UPDATE outbox SET claimed_until = now() + interval '{{claim_s}} seconds'
WHERE id IN (
    SELECT id FROM outbox
    WHERE sent_at IS NULL AND parked_at IS NULL AND NOT awaiting_admission AND claimed_until <= now()
    ORDER BY claimed_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
RETURNING id, job_id, attempt, stage, kind, payload, tries, caller_id

-- name: mark_sent
UPDATE outbox SET sent_at = now(), last_error = NULL WHERE id = ANY(%(ids)s)

-- name: mark_failed
UPDATE outbox SET tries = tries + %(counted)s, last_error = %(error)s,
    claimed_until = now() + interval '10 seconds',
    parked_at = CASE WHEN tries + %(counted)s >= {{park_after}} THEN now() END
WHERE id = ANY(%(ids)s) AND sent_at IS NULL

-- name: record_dead_letter
INSERT INTO dead_letters (queue, body, receive_count, reason, cause, job_id, stage, attempt, message_id,
                          body_ref, attributes, source_id)
VALUES (%(queue)s, %(body)s, %(receive_count)s, %(reason)s, %(cause)s, %(job_id)s, %(stage)s, %(attempt)s,
        %(message_id)s, %(body_ref)s, %(attributes)s, %(source_id)s)
ON CONFLICT (queue, source_id) DO NOTHING

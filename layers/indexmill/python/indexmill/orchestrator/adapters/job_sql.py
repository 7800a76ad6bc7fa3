"""Every statement of the job store, by name."""

from __future__ import annotations

from typing import Final

CLAIM_S: Final = 30
"""How long a process may hold unsent messages before somebody else takes them."""
PARK_AFTER: Final = 10
"""Failed tries after which a message is set aside, so that it never blocks the others."""

JOB_COLUMNS: Final = (
    "id, status, url, corpus_name, failed_stage, error, created_at, updated_at, attempt, batch_id,"
    " document_id, chunk_count, title, tries, next_retry_at, priority, job_type, replay_of, expected_by"
)
GET: Final = f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = %s AND caller_id = %s"
# One statement, so that the job and its events are of one moment.
EVENTS_AFTER: Final = f"""
SELECT {JOB_COLUMNS},
    (SELECT coalesce(max(seq), 0) FROM job_history WHERE job_id = jobs.id),
    (SELECT coalesce(jsonb_agg(jsonb_build_array(seq, attempt, to_status, at, detail) ORDER BY seq), '[]')
     FROM job_history WHERE job_id = jobs.id AND seq > %s)
FROM jobs WHERE id = %s AND caller_id = %s
"""
FIND: Final = f"""
SELECT {JOB_COLUMNS} FROM jobs
WHERE caller_id = %(caller_id)s
  AND (%(corpus_name)s::text IS NULL OR corpus_name = %(corpus_name)s)
  AND (%(status)s::text IS NULL OR status = %(status)s)
  AND (%(failed_stage)s::text IS NULL OR failed_stage = %(failed_stage)s)
  AND (%(url)s::text IS NULL OR url = %(url)s)
  AND (%(created_after)s::timestamptz IS NULL OR created_at >= %(created_after)s)
  AND (%(created_before)s::timestamptz IS NULL OR created_at < %(created_before)s)
  AND (%(before_at)s::timestamptz IS NULL OR (created_at, id) < (%(before_at)s, %(before_id)s::text))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s
"""

_STATE_COLUMNS: Final = (
    "id, status, attempt, caller_id, corpus_name, corpus_key, document_id, canonical_url, url, title"
)
STATE: Final = f"SELECT {_STATE_COLUMNS}, 0 FROM jobs WHERE id = %s"
# In the order of ids, so that two batches that share jobs wait for each other and never deadlock.
LOCK: Final = f"""
SELECT {_STATE_COLUMNS}, nextval('generation_seq')
FROM jobs WHERE id = ANY(%s) ORDER BY id FOR UPDATE
"""

RECEIVE: Final = """
INSERT INTO inbox (message_id) SELECT DISTINCT unnest(%s::text[]) ON CONFLICT DO NOTHING RETURNING message_id
"""
FORGET: Final = "DELETE FROM inbox WHERE message_id = ANY(%s)"

# Payloads are sent in binary: as text, each character of a document would be looked at for quoting.
APPLY: Final = f"""
WITH change AS (
    SELECT * FROM unnest(%(job_ids)s::text[], %(statuses)s::text[], %(stages)s::text[], %(errors)s::jsonb[],
                         %(titles)s::text[], %(counts)s::int[])
        AS t(job_id, status, failed_stage, error, title, chunk_count)
), job AS (
    UPDATE jobs SET status = change.status, failed_stage = change.failed_stage, error = change.error,
        title = coalesce(change.title, jobs.title),
        chunk_count = coalesce(change.chunk_count, jobs.chunk_count), updated_at = now(),
        tries = 0, next_retry_at = NULL, retry_cause = NULL,
        ended_at = CASE WHEN change.status IN ('done', 'failed') THEN now() END
    FROM change WHERE jobs.id = change.job_id
), history AS (
    INSERT INTO job_history (job_id, attempt, from_status, to_status, cause, detail, tries, worker,
                             elapsed_ms, job_type, payload_digest)
    SELECT h.*, jobs.job_type, jobs.payload_digest
    FROM unnest(%(h_jobs)s::text[], %(h_attempts)s::int[], %(h_from)s::text[], %(h_to)s::text[],
                %(h_causes)s::text[], %(h_details)s::jsonb[], %(h_tries)s::int[], %(h_workers)s::text[],
                %(h_elapsed)s::int[])
        AS h(job_id, attempt, from_status, to_status, cause, detail, tries, worker, elapsed_ms)
    JOIN jobs ON jobs.id = h.job_id
)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
SELECT o.id, o.job_id, jobs.caller_id, o.attempt, o.stage, o.kind, o.payload,
    now() + interval '{CLAIM_S} seconds'
FROM unnest(%(o_ids)s::text[], %(o_jobs)s::text[], %(o_attempts)s::int[], %(o_stages)s::text[],
            %(o_kinds)s::text[], %(o_payloads)b::text[]) AS o(id, job_id, attempt, stage, kind, payload)
JOIN jobs ON jobs.id = o.job_id
"""

# Only what the job is still waiting for: a note that comes late says nothing any more.
NOTE: Final = """
UPDATE jobs SET tries = note.tries, next_retry_at = note.next_retry_at, retry_cause = note.cause,
    updated_at = now()
FROM unnest(%s::text[], %s::int[], %s::timestamptz[], %s::text[]) AS note(job_id, tries, next_retry_at, cause)
WHERE jobs.id = note.job_id
"""

CLAIM: Final = f"""
UPDATE outbox SET claimed_until = now() + interval '{CLAIM_S} seconds'
WHERE id IN (
    SELECT id FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL AND claimed_until <= now()
    ORDER BY claimed_until LIMIT %s FOR UPDATE SKIP LOCKED
)
RETURNING id, job_id, attempt, stage, kind, payload, tries, caller_id
"""
MARK_SENT: Final = "UPDATE outbox SET sent_at = now(), last_error = NULL WHERE id = ANY(%s)"
MARK_FAILED: Final = f"""
UPDATE outbox SET tries = tries + 1, last_error = %s, claimed_until = now() + interval '10 seconds',
    parked_at = CASE WHEN tries + 1 >= {PARK_AFTER} AND kind = 'queue' THEN now() END
WHERE id = ANY(%s) AND sent_at IS NULL
"""

# The product's own query for stuck jobs, then the kept message of each one's current stage and attempt. A
# job whose message is still to be sent is the relay's. Touching updated_at keeps the next tick away.
RESCUE: Final = f"""
WITH stuck AS (
    SELECT id, status, attempt FROM jobs
    WHERE status NOT IN ('done', 'failed') AND updated_at < now() - interval '30 minutes'
    ORDER BY updated_at LIMIT %s FOR UPDATE SKIP LOCKED
), kept AS (
    SELECT DISTINCT ON (outbox.job_id) outbox.id, outbox.job_id
    FROM outbox JOIN stuck ON stuck.id = outbox.job_id AND stuck.status = outbox.stage
        AND stuck.attempt = outbox.attempt
    WHERE outbox.sent_at IS NOT NULL OR outbox.parked_at IS NOT NULL
    ORDER BY outbox.job_id, outbox.created_at DESC
), touched AS (
    UPDATE jobs SET updated_at = now() FROM kept WHERE jobs.id = kept.job_id
)
UPDATE outbox SET sent_at = NULL, parked_at = NULL, tries = 0,
    claimed_until = now() + interval '{CLAIM_S} seconds'
FROM kept WHERE outbox.id = kept.id
RETURNING outbox.id, outbox.job_id, outbox.attempt, outbox.stage, outbox.kind, outbox.payload, outbox.tries,
    outbox.caller_id
"""

DEAD_LETTER: Final = (
    "INSERT INTO dead_letters (queue, job_id, body, receive_count, reason) VALUES (%s, %s, %s, %s, %s)"
)

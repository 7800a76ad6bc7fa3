"""Every statement of the job store, by name."""

from __future__ import annotations

from typing import Final

from indexmill.orchestrator.ports import LEFT_AFTER

CLAIM_S: Final = 30
"""How long a process may hold unsent messages before somebody else takes them."""
PARK_AFTER: Final = 10
"""Failed tries after which a message is set aside, so that it never blocks the others."""

JOB_COLUMNS: Final = (
    "id, status, url, corpus_name, failed_stage, error, created_at, updated_at, attempt, batch_id,"
    " document_id, chunk_count, title, tries, next_retry_at, priority, job_type, replay_of, expected_by"
)
GET: Final = f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = %s AND caller_id = %s"
# One statement, so that the job and its events are of one moment. The sum keeps a planner without statistics
# from looking for the newest row by walking backwards through everybody's.
EVENTS_AFTER: Final = f"""
SELECT {JOB_COLUMNS},
    (SELECT coalesce(max(seq + 0), 0) FROM job_history WHERE job_id = jobs.id),
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
  AND (%(code)s::text IS NULL OR error->>'code' = %(code)s)
  AND (%(batch_id)s::text IS NULL OR batch_id = %(batch_id)s)
  AND (%(created_after)s::timestamptz IS NULL OR created_at >= %(created_after)s)
  AND (%(created_before)s::timestamptz IS NULL OR created_at < %(created_before)s)
  AND (%(before_at)s::timestamptz IS NULL OR (created_at, id) < (%(before_at)s, %(before_id)s::text))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s
"""

STATE_COLUMNS: Final = (
    "id, status, attempt, caller_id, corpus_name, corpus_key, document_id, canonical_url, url, title,"
    " generation, has_dependents"
)
STATE: Final = f"SELECT {STATE_COLUMNS}, 0 FROM jobs WHERE id = %s"
# In the order of ids, so that two batches that share jobs wait for each other and never deadlock.
LOCK: Final = f"""
SELECT {STATE_COLUMNS}, nextval('generation_seq')
FROM jobs WHERE id = ANY(%s) ORDER BY id FOR UPDATE
"""

RECEIVE: Final = """
INSERT INTO inbox (message_id) SELECT DISTINCT unnest(%s::text[]) ON CONFLICT DO NOTHING RETURNING message_id
"""
FORGET: Final = "DELETE FROM inbox WHERE message_id = ANY(%s)"

# When a stage failed is told by this clock alone: each process has one of its own.
# Payloads are sent in binary: as text, each character of a document would be looked at for quoting.
APPLY: Final = f"""
WITH change AS (
    SELECT * FROM unnest(%(job_ids)s::text[], %(statuses)s::text[], %(stages)s::text[], %(errors)s::jsonb[],
                         %(titles)s::text[], %(counts)s::int[], %(generations)s::bigint[],
                         %(raw_refs)s::jsonb[], %(facts)s::jsonb[])
        AS t(job_id, status, failed_stage, error, title, chunk_count, generation, raw_ref, facts)
), job AS (
    UPDATE jobs SET status = change.status, failed_stage = change.failed_stage,
        error = change.error || jsonb_build_object('at', now()),
        title = coalesce(change.title, jobs.title),
        chunk_count = coalesce(change.chunk_count, jobs.chunk_count), updated_at = now(),
        generation = coalesce(change.generation, jobs.generation),
        raw_ref = coalesce(change.raw_ref, jobs.raw_ref),
        determinism = coalesce(jobs.determinism || change.facts, change.facts, jobs.determinism),
        tries = 0, next_retry_at = NULL, retry_cause = NULL,
        ended_at = CASE WHEN change.status IN ('done', 'failed') THEN now() END
    FROM change WHERE jobs.id = change.job_id
), history AS (
    INSERT INTO job_history (job_id, attempt, from_status, to_status, cause, detail, tries, worker,
                             elapsed_ms, job_type, payload_digest)
    SELECT h.job_id, h.attempt, h.from_status, h.to_status, h.cause,
        h.detail || jsonb_build_object('at', now()), h.tries, h.worker, h.elapsed_ms,
        jobs.job_type, jobs.payload_digest
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
UPDATE jobs SET tries = note.tries, retry_cause = note.cause, updated_at = now(),
    next_retry_at = coalesce(now() + make_interval(secs => note.retry_in_s), note.next_retry_at)
FROM unnest(%s::text[], %s::int[], %s::timestamptz[], %s::float8[], %s::text[])
    AS note(job_id, tries, next_retry_at, retry_in_s, cause)
WHERE jobs.id = note.job_id
"""

KEPT: Final = """
SELECT DISTINCT ON (stage) stage, payload FROM outbox WHERE job_id = %s
ORDER BY stage, attempt DESC, created_at DESC
"""
# The stage's message once more, held by us: same job, same attempt, new id and generation.
RESEND: Final = f"""
WITH job AS (UPDATE jobs SET generation = %(generation)s, updated_at = now() WHERE id = %(job_id)s)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
VALUES (%(id)s, %(job_id)s, %(caller_id)s, %(attempt)s, %(stage)s, %(kind)s, %(payload)b,
    now() + interval '{CLAIM_S} seconds')
"""

# Whoever takes messages holds them for a while, and gets them whole.
_TAKE: Final = f"UPDATE outbox SET claimed_until = now() + interval '{CLAIM_S} seconds'"
_TAKEN_ROWS: Final = "RETURNING id, job_id, attempt, stage, kind, payload, tries, caller_id"
CLAIM: Final = f"""
{_TAKE}
WHERE id IN (
    SELECT id FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL AND claimed_until <= now()
    ORDER BY claimed_until LIMIT %s FOR UPDATE SKIP LOCKED
)
{_TAKEN_ROWS}
"""
TAKE_OVER: Final = f"""
{_TAKE}
WHERE id = ANY(%s) AND sent_at IS NULL AND parked_at IS NULL AND claimed_until < 'infinity'
{_TAKEN_ROWS}
"""
LEFT_BEHIND: Final = f"""
{_TAKE}
WHERE job_id = ANY(%s) AND sent_at IS NULL AND parked_at IS NULL AND last_error IS NULL
    AND claimed_until < now() + interval '{CLAIM_S - LEFT_AFTER.seconds} seconds'
{_TAKEN_ROWS}
"""
MARK_SENT: Final = "UPDATE outbox SET sent_at = now(), last_error = NULL WHERE id = ANY(%s)"
# A call is the stage's work itself: its job tells until when it waits. A job that is just being moved on is
# left alone, and so nobody waits for anybody here.
MARK_FAILED: Final = f"""
WITH given_back AS (
    UPDATE outbox SET tries = tries + %(counted)s, last_error = %(error)s,
        claimed_until = now() + interval '10 seconds',
        parked_at = CASE WHEN tries + %(counted)s >= {PARK_AFTER} AND kind = 'queue' THEN now() END
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
"""

DEAD_LETTER: Final = """
INSERT INTO dead_letters (queue, body, receive_count, reason, cause, job_id, stage, attempt, message_id,
                          body_ref, attributes, source_id)
VALUES (%(queue)s, %(body)s, %(receive_count)s, %(reason)s, %(cause)s, %(job_id)s, %(stage)s, %(attempt)s,
        %(message_id)s, %(body_ref)s, %(attributes)s, %(source_id)s)
ON CONFLICT (queue, source_id) DO NOTHING
"""

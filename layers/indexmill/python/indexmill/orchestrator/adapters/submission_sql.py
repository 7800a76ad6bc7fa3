"""Statements that accept jobs."""

from __future__ import annotations

from typing import Final

# Payloads are sent in binary: as text, each character of a document would be looked at for quoting.
SUBMIT: Final = """
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
), history AS (
    INSERT INTO job_history (job_id, attempt, from_status, to_status, cause, job_type, payload_digest)
    SELECT new.job_id, 1, NULL, 'pending', 'submitted', %(job_type)s, new.payload_digest
    FROM new JOIN job ON job.id = new.job_id
), held AS (
    INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
    SELECT outbox_id, job_id, %(caller_id)s, 1, %(first)s, 'queue', payload, 'infinity'
    FROM new JOIN job ON job.id = new.job_id
)
SELECT id FROM job
"""

# A key counts for a day. Whoever comes second waits here until the first one has committed.
TAKE_KEY: Final = """
INSERT INTO idempotency_keys (caller_id, key, body_sha256, answer) VALUES (%s, %s, %s, '{}')
ON CONFLICT (caller_id, key) DO UPDATE
    SET body_sha256 = excluded.body_sha256, answer = excluded.answer, created_at = now()
    WHERE idempotency_keys.created_at <= now() - interval '24 hours'
RETURNING key
"""
KEPT_ANSWER: Final = (
    "SELECT body_sha256, answer::text FROM idempotency_keys WHERE caller_id = %s AND key = %s"
)
KEEP_ANSWER: Final = "UPDATE idempotency_keys SET answer = %s::jsonb WHERE caller_id = %s AND key = %s"

# The job that is at work on each document already; or the job itself, when a lost answer made us ask twice.
IN_FLIGHT: Final = """
SELECT document_id, id, status, expected_by FROM jobs
WHERE document_id = ANY(%s) AND (status NOT IN ('done', 'failed') AND NOT forced OR id = ANY(%s))
"""

-- fragment: state_columns
id, status, attempt, caller_id, corpus_name, corpus_key, document_id, canonical_url, url, title,
    generation, has_dependents

-- name: state
SELECT {{state_columns}}, 0 AS next_generation FROM jobs WHERE id = %(job_id)s

-- In the order of ids, so that two batches that share jobs wait for each other and never deadlock.
-- name: lock_jobs
SELECT {{state_columns}}, nextval('generation_seq') AS next_generation
FROM jobs WHERE id = ANY(%(job_ids)s) ORDER BY id FOR UPDATE

-- name: receive
INSERT INTO inbox (message_id) SELECT DISTINCT unnest(%(message_ids)s::text[]) ON CONFLICT DO NOTHING
RETURNING message_id

-- name: forget
DELETE FROM inbox WHERE message_id = ANY(%(message_ids)s)

-- The time of a failure is this clock's alone: each process has one of its own.
-- Payloads are sent in binary: as text, each character of a document would be looked at for quoting.
-- name: save_results
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
), transition AS (
    SELECT h.job_id, h.attempt, h.from_status, h.to_status, h.cause,
        h.detail || jsonb_build_object('at', now()) AS detail, h.tries, h.worker, h.elapsed_ms,
        jobs.job_type, jobs.payload_digest
    FROM unnest(%(h_jobs)s::text[], %(h_attempts)s::int[], %(h_from)s::text[], %(h_to)s::text[],
                %(h_causes)s::text[], %(h_details)s::jsonb[], %(h_tries)s::int[], %(h_workers)s::text[],
                %(h_elapsed)s::int[])
        AS h(job_id, attempt, from_status, to_status, cause, detail, tries, worker, elapsed_ms)
    JOIN jobs ON jobs.id = h.job_id
), history AS (
    {{insert_history}}
)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
SELECT o.id, o.job_id, jobs.caller_id, o.attempt, o.stage, 'queue', o.payload,
    now() + interval '{{claim_s}} seconds'
FROM unnest(%(o_ids)s::text[], %(o_jobs)s::text[], %(o_attempts)s::int[], %(o_stages)s::text[],
            %(o_payloads)b::text[]) AS o(id, job_id, attempt, stage, payload)
JOIN jobs ON jobs.id = o.job_id

-- name: save_retries
UPDATE jobs SET tries = note.tries, retry_cause = note.cause, updated_at = now(),
    next_retry_at = coalesce(now() + make_interval(secs => note.retry_in_s), note.next_retry_at)
FROM unnest(%(job_ids)s::text[], %(tries)s::int[], %(next_retry_at)s::timestamptz[],
            %(retry_in_s)s::float8[], %(causes)s::text[])
    AS note(job_id, tries, next_retry_at, retry_in_s, cause)
WHERE jobs.id = note.job_id

-- name: kept_payloads
SELECT DISTINCT ON (stage) stage, payload FROM outbox WHERE job_id = %(job_id)s
ORDER BY stage, attempt DESC, created_at DESC

-- The stage's message once more, claimed by this process: same job, same attempt, new id and generation.
-- name: redispatch
WITH job AS (UPDATE jobs SET generation = %(generation)s, updated_at = now() WHERE id = %(job_id)s)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
VALUES (%(id)s, %(job_id)s, %(caller_id)s, %(attempt)s, %(stage)s, 'queue', %(payload)b,
    now() + interval '{{claim_s}} seconds')

-- Locks the documents' rows, or makes them, so that nothing of them is published before the commit; in the
-- order of ids. A row that was made for this alone is deleted when no message of before can be left.
-- name: lock_documents
INSERT INTO documents (document_id, corpus_id, url, fenced_at)
SELECT DISTINCT ON (one.document_id) one.document_id, corpora.id, one.url, now()
FROM unnest(%(documents)s::text[], %(corpus_keys)s::text[], %(urls)s::text[])
    AS one(document_id, corpus_key, url)
JOIN corpora ON corpora.corpus_key = one.corpus_key
ORDER BY one.document_id
ON CONFLICT (document_id) DO UPDATE SET min_generation = documents.min_generation
RETURNING document_id, published

-- name: raise_fences
UPDATE documents SET min_generation = greatest(min_generation, closed.generation + 1),
    fenced_at = CASE WHEN published IS NULL THEN now() END
FROM unnest(%(documents)s::text[], %(generations)s::bigint[]) AS closed(document_id, generation)
WHERE documents.document_id = closed.document_id

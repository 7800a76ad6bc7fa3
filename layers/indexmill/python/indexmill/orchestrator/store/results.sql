-- Statements of results.

-- name: state
SELECT {{state_columns}}, 0 AS next_generation FROM jobs WHERE id = %(job_id)s

-- In the order of ids, so that two batches that share jobs wait for each other and never deadlock.
-- name: lock_jobs
SELECT {{state_columns}}, next_generation() AS next_generation,
    EXISTS (SELECT FROM duplicates AS d WHERE d.document_id = jobs.document_id)
        OR EXISTS (SELECT FROM duplicates AS d WHERE d.original = jobs.document_id) AS has_duplicates,
    EXISTS (SELECT FROM tombstones WHERE tombstones.id = jobs.corpus_key) AS corpus_is_deleted
FROM jobs WHERE id = ANY(%(job_ids)s) ORDER BY id FOR UPDATE

-- Of jobs with a budget in money. OFFSET 0 has the planner look up each job's history by its index.
-- name: spent
SELECT one.id AS job_id, sum(gb_s) AS gb_s, sum(invocations) AS invocations, sum(api_requests) AS api_requests,
    sum(sqs_units) AS sqs_units, sum(s3_reads) AS s3_reads, sum(s3_writes) AS s3_writes,
    sum(dynamodb_reads) AS dynamodb_reads, sum(dynamodb_writes) AS dynamodb_writes,
    sum(tokens_embedded)::bigint AS tokens_embedded
FROM unnest(%(job_ids)b::text[]) AS one(id) CROSS JOIN LATERAL (
    SELECT spent FROM job_history WHERE job_id = one.id AND spent IS NOT NULL OFFSET 0
) AS transition
CROSS JOIN LATERAL jsonb_to_record(spent) AS used(
    gb_s float8, invocations float8, api_requests float8, sqs_units float8, s3_reads float8, s3_writes float8,
    dynamodb_reads float8, dynamodb_writes float8, tokens_embedded bigint
)
GROUP BY one.id

-- name: receive
INSERT INTO inbox (message_id) SELECT DISTINCT unnest(%(message_ids)b::text[]) ON CONFLICT DO NOTHING
RETURNING message_id

-- name: forget
DELETE FROM inbox WHERE message_id = ANY(%(message_ids)s)

-- The time of a failure is this clock's alone: each process has one of its own.
-- Payloads are sent in binary: as text, each character of a document would be looked at for quoting.
-- name: save_results
WITH change AS (
    SELECT * FROM unnest(%(job_ids)b::text[], %(statuses)b::text[], %(stages)b::text[], %(errors)b::jsonb[],
                         %(titles)b::text[], %(counts)b::int[], %(generations)b::bigint[],
                         %(raw_refs)b::jsonb[], %(facts)b::jsonb[], %(changes)b::text[], %(unchanged)b::text[],
                         %(duplicates)b::jsonb[])
        AS t(job_id, status, failed_stage, error, title, chunk_count, generation, raw_ref, facts, page_change,
             unchanged, duplicate_of)
), job AS (
    UPDATE jobs SET status = change.status, failed_stage = change.failed_stage,
        error = change.error || jsonb_build_object('at', now()),
        title = coalesce(change.title, jobs.title),
        chunk_count = coalesce(change.chunk_count, jobs.chunk_count), updated_at = now(),
        generation = coalesce(change.generation, jobs.generation),
        raw_ref = coalesce(change.raw_ref, jobs.raw_ref),
        determinism = coalesce(jobs.determinism || change.facts, change.facts, jobs.determinism),
        page_change = coalesce(change.page_change, jobs.page_change), unchanged = change.unchanged,
        duplicate_of = coalesce(change.duplicate_of, jobs.duplicate_of),
        tries = 0, next_retry_at = NULL, retry_cause = NULL,
        ended_at = CASE WHEN change.status IN ('done', 'failed') THEN now() END
    FROM change WHERE jobs.id = change.job_id
    RETURNING jobs.id, jobs.caller_id, jobs.job_type, jobs.payload_digest, jobs.request_id
), transition AS (
    SELECT h.job_id, h.attempt, h.from_status, h.to_status, h.cause,
        h.detail || jsonb_build_object('at', now()) AS detail, h.tries, h.worker, h.elapsed_ms,
        h.spent, job.job_type, job.payload_digest, job.request_id
    FROM unnest(%(h_jobs)b::text[], %(h_attempts)b::int[], %(h_from)b::text[], %(h_to)b::text[],
                %(h_causes)b::text[], %(h_details)b::jsonb[], %(h_tries)b::int[], %(h_workers)b::text[],
                %(h_elapsed)b::int[], %(h_spent)b::jsonb[]) WITH ORDINALITY
        AS h(job_id, attempt, from_status, to_status, cause, detail, tries, worker, elapsed_ms, spent, position)
    JOIN job ON job.id = h.job_id
    ORDER BY h.position
), history AS (
    {{insert_history}}
)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
SELECT o.id, o.job_id, job.caller_id, o.attempt, o.stage, 'queue', o.payload,
    now() + interval '{{claim_s}} seconds'
FROM unnest(%(o_ids)b::text[], %(o_jobs)b::text[], %(o_attempts)b::int[], %(o_stages)b::text[],
            %(o_payloads)b::text[]) AS o(id, job_id, attempt, stage, payload)
JOIN job ON job.id = o.job_id

-- name: note_stale
INSERT INTO audit_events (event, caller_id, caller_type, tier, fields)
SELECT 'stale_callback', jobs.caller_id, jobs.caller_type, jobs.tier, jsonb_strip_nulls(jsonb_build_object(
    'job_id', stale.job_id, 'attempt', stale.attempt, 'current_attempt', jobs.attempt, 'stage', stale.stage,
    'status', stale.status, 'code', stale.failure->>'code', 'request_id', stale.request_id))
FROM jsonb_to_recordset(%(results)s::jsonb)
    AS stale(job_id text, attempt int, stage text, status text, failure jsonb, request_id text)
JOIN jobs ON jobs.id = stale.job_id

-- Of two that arrive in the wrong order the one with the later next try stays. The last error counts while there is a
-- cause: what ends the wait clears that alone, in the release before too. It has its stage, for the same reason.
-- name: save_retries
UPDATE jobs SET tries = note.tries, retry_cause = note.cause, updated_at = now(),
    next_retry_at = coalesce(now() + make_interval(secs => note.retry_in_s), note.next_retry_at),
    last_error = coalesce(note.failure || jsonb_build_object('stage', status, 'at', now()),
                          CASE WHEN retry_cause IS NOT NULL THEN last_error END)
FROM unnest(%(job_ids)b::text[], %(tries)b::int[], %(next_retry_at)s::timestamptz[],
            %(retry_in_s)s::float8[], %(causes)b::text[], %(failures)b::jsonb[])
    AS note(job_id, tries, next_retry_at, retry_in_s, cause, failure)
WHERE jobs.id = note.job_id AND (jobs.next_retry_at IS NULL
    OR jobs.next_retry_at <= coalesce(now() + make_interval(secs => note.retry_in_s), note.next_retry_at))

-- A copy of the stage's message, claimed by this process: same job, same attempt, new id and generation.
-- name: redispatch
WITH job AS (UPDATE jobs SET generation = coalesce(%(generation)s, generation), updated_at = now() WHERE id = %(job_id)s)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
VALUES (%(id)s, %(job_id)s, %(caller_id)s, %(attempt)s, %(stage)s, 'queue', %(payload)b,
    now() + interval '{{claim_s}} seconds')

-- Locks the documents' rows, or makes them, so that nothing of them is published before the commit; in the
-- order of ids. A row that was made for this alone is deleted when no message of before can be left.
-- name: lock_documents
INSERT INTO documents (document_id, corpus_id, url, fenced_at)
SELECT DISTINCT ON (one.document_id) one.document_id, corpora.id, one.url, now()
FROM unnest(%(documents)b::text[], %(corpus_keys)b::text[], %(urls)b::text[])
    AS one(document_id, corpus_key, url)
JOIN corpora ON corpora.corpus_key = one.corpus_key
ORDER BY one.document_id
ON CONFLICT (document_id) DO UPDATE SET min_generation = documents.min_generation
RETURNING document_id, published, job_id, indexed_at, EXISTS (
    SELECT FROM jobs WHERE jobs.document_id = documents.document_id AND forced AND status NOT IN ('done', 'failed')
) AS contested

-- name: keep_published
UPDATE documents SET job_id = kept.job_id, stale_since = NULL,
    metadata = coalesce(kept.metadata, documents.metadata),
    fetched_at = coalesce(kept.fetched_at, documents.fetched_at),
    content_type = coalesce(documents.content_type, kept.content_type)
FROM (
    SELECT one.document_id, one.job_id, job.*
    FROM unnest(%(documents)b::text[], %(jobs)b::text[]) AS one(document_id, job_id)
    CROSS JOIN LATERAL (
        SELECT metadata, (raw_ref->>'fetched_at')::timestamptz AS fetched_at,
            determinism->>'content_type' AS content_type
        FROM jobs WHERE id = one.job_id OFFSET 0
    ) AS job
) AS kept
WHERE documents.document_id = kept.document_id

-- Unless another job has published it meanwhile.
-- name: mark_stale
UPDATE documents SET stale_since = coalesce(stale_since, now())
FROM unnest(%(documents)b::text[], %(jobs)b::text[]) AS gone(document_id, job_id)
WHERE documents.document_id = gone.document_id AND documents.job_id = gone.job_id AND published IS NOT NULL

-- name: raise_fences
UPDATE documents SET min_generation = greatest(min_generation, closed.generation + 1),
    fenced_at = CASE WHEN published IS NULL THEN now() END
FROM unnest(%(documents)b::text[], %(generations)b::bigint[]) AS closed(document_id, generation)
WHERE documents.document_id = closed.document_id

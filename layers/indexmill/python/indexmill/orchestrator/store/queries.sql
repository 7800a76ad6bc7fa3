-- Statements of queries.

-- name: job
SELECT {{job_columns}} FROM jobs WHERE id = %(job_id)s AND caller_id = %(caller_id)s

-- One statement, so that the job and its events are of one moment. The sum keeps a planner without statistics
-- from looking for the newest row by walking backwards through those of all jobs.
-- name: job_events
SELECT {{job_columns}},
    (SELECT coalesce(max(seq + 0), 0) FROM job_history WHERE job_id = jobs.id) AS newest,
    (SELECT coalesce(jsonb_agg(jsonb_build_object('seq', seq, 'attempt', attempt, 'to_status', to_status,
                                                  'at', at, 'detail', detail) ORDER BY seq), '[]')
     FROM job_history WHERE job_id = jobs.id AND seq > %(seq)s) AS events
FROM jobs WHERE id = %(job_id)s AND caller_id = %(caller_id)s

-- fragment: wanted_jobs
jobs.caller_id = %(caller_id)s
  AND (%(job_id)s::text IS NULL OR jobs.id = %(job_id)s)
  AND (%(corpus_name)s::text IS NULL OR jobs.corpus_key = ANY (ARRAY(
        SELECT c.corpus_key FROM corpus_names AS n JOIN corpora AS c ON c.id = n.corpus
        WHERE n.owner IN (%(caller_id)s, '') AND n.name = %(corpus_name)s)))
  AND (%(status)s::text IS NULL OR jobs.status = %(status)s)
  AND (%(failed_stage)s::text IS NULL OR jobs.failed_stage = %(failed_stage)s)
  AND (%(url)s::text IS NULL OR jobs.url = %(url)s)
  AND (%(code)s::text IS NULL OR jobs.error->>'code' = %(code)s)
  AND (%(batch_id)s::text IS NULL OR jobs.batch_id = %(batch_id)s)
  AND (%(created_after)s::timestamptz IS NULL OR jobs.created_at >= %(created_after)s)
  AND (%(created_before)s::timestamptz IS NULL OR jobs.created_at < %(created_before)s)

-- name: find_jobs
SELECT {{job_columns}} FROM jobs
WHERE {{wanted_jobs}}
  AND (%(before_at)s::timestamptz IS NULL OR (created_at, id) < (%(before_at)s, %(before_id)s::text))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s

-- Sums by stage, and of all stages (NULL). A transition of work that says nothing is of a release without receipts.
-- OFFSET 0 has the planner look up each job's history by its index, with statistics or without.
-- name: receipt
SELECT stage, count(DISTINCT job_id)::int AS jobs,
    count(DISTINCT job_id) FILTER (WHERE NOT metered)::int AS unknown_jobs,
    sum(transition.tries)::int AS tries, sum(transition.elapsed_ms)::bigint AS wall_ms,
    sum(gb_s) AS gb_s, sum(invocations) AS invocations, sum(api_requests) AS api_requests,
    sum(sqs_requests) AS sqs_requests, sum(sqs_units) AS sqs_units,
    sum(s3_reads) AS s3_reads, sum(s3_writes) AS s3_writes, sum(dynamodb_requests) AS dynamodb_requests,
    sum(dynamodb_reads) AS dynamodb_reads, sum(dynamodb_writes) AS dynamodb_writes,
    sum(bytes_fetched)::bigint AS bytes_fetched, sum(bytes_stored)::bigint AS bytes_stored,
    sum(chunks)::bigint AS chunks, sum(chunks_embedded)::bigint AS chunks_embedded,
    sum(chunks_removed)::bigint AS chunks_removed,
    sum(tokens)::bigint AS tokens, sum(tokens_embedded)::bigint AS tokens_embedded
FROM (SELECT id FROM jobs WHERE {{wanted_jobs}} LIMIT %(most)s) AS wanted CROSS JOIN LATERAL (
    SELECT job_id, spent IS NOT NULL AS metered, tries, elapsed_ms, spent,
        coalesce(nullif(from_status, 'pending'), 'submission') AS stage
    FROM job_history AS h
    WHERE h.job_id = wanted.id AND (spent IS NOT NULL OR elapsed_ms IS NOT NULL OR from_status IS NULL)
    OFFSET 0
) AS transition
LEFT JOIN LATERAL jsonb_to_record(spent) AS used(
    gb_s float8, invocations float8, api_requests float8, sqs_requests float8, sqs_units float8,
    s3_reads float8, s3_writes float8, dynamodb_requests float8, dynamodb_reads float8, dynamodb_writes float8,
    bytes_fetched bigint, bytes_stored bigint, chunks bigint, chunks_embedded bigint, chunks_removed bigint,
    tokens bigint, tokens_embedded bigint
) ON true
GROUP BY GROUPING SETS ((stage), ())

-- Up to so many jobs of one status, so that the cost does not grow with what a caller ever did.
-- name: count_jobs
SELECT status, failed_stage, count(*)::int AS count
FROM unnest(%(statuses)s::text[]) AS wanted(name) CROSS JOIN LATERAL (
    SELECT status, failed_stage FROM jobs WHERE caller_id = %(caller_id)s AND status = wanted.name LIMIT %(most)s
) AS own
GROUP BY status, failed_stage

-- What holds back jobs that are in flight: pauses and breakers, as the last sweep saw them. It switches the stages, so a
-- pause that it did not see yet holds back nothing.
-- name: holds
SELECT kind AS reason, subject FROM incidents WHERE kind IN ('paused', 'breaker_open') AND closed_at IS NULL
ORDER BY kind DESC

-- name: other_model
SELECT FROM incidents WHERE kind = 'other_model' AND closed_at IS NULL LIMIT 1

-- name: count_batch
SELECT status, error->>'code' AS code, count(*) AS count, bool_or(kind IS NOT NULL) AS crawls,
    count(duplicate_of) FILTER (WHERE status = 'done') AS duplicates
FROM jobs
WHERE batch_id = %(batch_id)s AND caller_id = %(caller_id)s
GROUP BY status, error->>'code'

-- name: history
SELECT h.attempt, h.from_status, h.to_status, h.at, h.cause, h.detail AS error, h.tries, h.worker,
    h.elapsed_ms,
    (extract(epoch FROM h.at - lag(h.at) OVER chain) * 1000)::bigint AS waited_ms,
    h.job_type, h.payload_digest, h.request_id, h.prev_hash, h.hash, jobs.status,
    h.prev_hash = lag(h.hash, 1, '') OVER chain AND h.hash = job_history_hash(h) AS sound
FROM job_history AS h JOIN jobs ON jobs.id = h.job_id
WHERE h.job_id = %(job_id)s AND jobs.caller_id = %(caller_id)s
WINDOW chain AS (ORDER BY h.seq) ORDER BY h.seq

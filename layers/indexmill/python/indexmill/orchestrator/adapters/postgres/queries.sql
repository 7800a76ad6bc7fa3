-- fragment: job_columns
id, status, url, corpus_name, failed_stage, error, created_at, updated_at, attempt, batch_id, document_id,
    chunk_count, title, tries, next_retry_at, priority, job_type, replay_of, expected_by

-- name: job
SELECT {{job_columns}} FROM jobs WHERE id = %(job_id)s AND caller_id = %(caller_id)s

-- One statement, so that the job and its events are of one moment. The sum keeps a planner without statistics
-- from looking for the newest row by walking backwards through everybody's.
-- name: job_events
SELECT {{job_columns}},
    (SELECT coalesce(max(seq + 0), 0) FROM job_history WHERE job_id = jobs.id) AS newest,
    (SELECT coalesce(jsonb_agg(jsonb_build_object('seq', seq, 'attempt', attempt, 'to_status', to_status,
                                                  'at', at, 'detail', detail) ORDER BY seq), '[]')
     FROM job_history WHERE job_id = jobs.id AND seq > %(seq)s) AS events
FROM jobs WHERE id = %(job_id)s AND caller_id = %(caller_id)s

-- name: find_jobs
SELECT {{job_columns}} FROM jobs
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

-- name: original
SELECT {{job_columns}}, caller_id, corpus_key, canonical_url, raw_ref, determinism, payload_digest
FROM jobs WHERE id = %(job_id)s AND caller_id = %(caller_id)s

-- name: count_batch
SELECT status, error->>'code' AS code, count(*) AS count FROM jobs
WHERE batch_id = %(batch_id)s AND caller_id = %(caller_id)s
GROUP BY status, error->>'code'

-- name: history
SELECT h.attempt, h.from_status, h.to_status, h.at, h.cause, h.detail AS error, h.tries, h.worker,
    h.elapsed_ms,
    (extract(epoch FROM h.at - lag(h.at) OVER chain) * 1000)::bigint AS waited_ms,
    h.job_type, h.payload_digest, h.prev_hash, h.hash, jobs.status,
    h.prev_hash = lag(h.hash, 1, '') OVER chain AND h.hash = job_history_hash(h) AS sound
FROM job_history AS h JOIN jobs ON jobs.id = h.job_id
WHERE h.job_id = %(job_id)s AND jobs.caller_id = %(caller_id)s
WINDOW chain AS (ORDER BY h.seq) ORDER BY h.seq

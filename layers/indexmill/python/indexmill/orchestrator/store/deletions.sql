-- Statements of deletions: what matches, the fence, the rows that go, and the report.

-- name: next_generation
SELECT next_generation() AS generation

-- A row that is only a fence is no document.
-- name: find_document
SELECT d.document_id, d.url, d.chunk_count, root_of(d.owner) AS owner FROM documents AS d JOIN corpora AS c ON c.id = d.corpus_id
WHERE d.document_id = %(document)s AND c.corpus_key = %(corpus_key)s AND d.published IS NOT NULL

-- name: corpus_name_of
SELECT n.name FROM documents AS d JOIN corpus_names AS n ON n.corpus = d.corpus_id
WHERE d.document_id = %(document)s AND n.owner = %(owner)s

-- name: key_of_corpus
SELECT key_of_corpus(%(owner)s, %(corpus_name)s) AS key

-- From here on the name is free, for another corpus.
-- name: free_name
DELETE FROM corpus_names USING corpora WHERE corpora.id = corpus AND corpora.corpus_key = %(corpus_key)s

-- Who has jobs of the document; those of an earlier deletion do not count.
-- name: callers_of_document
SELECT DISTINCT caller_id FROM jobs
WHERE corpus_key = %(corpus_key)s AND document_id = %(document)s AND job_type <> 'delete' AND deleted_at IS NULL

-- Published ones, and those that jobs are of. Of a corpus that callers share, a caller has those that it alone submitted.
-- name: match_documents
WITH found AS (
    SELECT d.document_id, d.url, d.chunk_count, d.owner FROM documents AS d JOIN corpora AS c ON c.id = d.corpus_id
    WHERE c.corpus_key = %(corpus_key)s AND d.published IS NOT NULL
        AND (%(url_prefix)s::text IS NULL OR starts_with(d.url, %(url_prefix)s))
    UNION ALL SELECT document_id, canonical_url, 0, CASE WHEN %(alone)s THEN caller_id END FROM jobs
    WHERE corpus_key = %(corpus_key)s AND document_id IS NOT NULL AND job_type <> 'delete' AND deleted_at IS NULL
        AND (%(url_prefix)s::text IS NULL OR starts_with(canonical_url, %(url_prefix)s))
)
SELECT document_id, max(url) AS url, sum(chunk_count)::int AS chunk_count FROM found GROUP BY document_id
HAVING NOT %(alone)s OR bool_and(root_of(owner) = %(caller_id)s)
ORDER BY document_id

-- name: corpus_exists
SELECT EXISTS (SELECT FROM corpora WHERE corpus_key = %(corpus_key)s) AS found

-- name: insert_deletion
WITH job AS (
    INSERT INTO jobs (id, status, caller_id, url, corpus_name, corpus_key, document_id, canonical_url, tier, job_type,
                      priority, forced, payload_digest, request_id, caller_type, submitted_by, resume_stage)
    VALUES (%(job_id)s, 'pending', %(caller_id)s, %(url)s, %(corpus_name)s, %(corpus_key)s, %(document)s, %(url)s, %(tier)s,
            'delete', 100, true, %(payload_digest)s, %(request_id)s, %(caller_type)s, %(submitted_by)s, 'embedding')
    RETURNING id, job_type, payload_digest, request_id
), transition AS (
    SELECT id AS job_id, 1 AS attempt, NULL::text AS from_status, 'pending' AS to_status, 'submitted' AS cause,
        NULL::jsonb AS detail, {{no_work}}, job_type, payload_digest, request_id
    FROM job
), history AS (
    {{insert_history}}
), deletion AS (
    INSERT INTO deletions (job_id, caller_id, what, generation)
    VALUES (%(job_id)s, %(caller_id)s, %(what)s, %(generation)s)
)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
VALUES (%(id)s, %(job_id)s, %(caller_id)s, 1, 'embedding', 'queue', %(payload)b::text, {{until_admission}})

-- name: lock_document_jobs
SELECT {{state_columns}}, next_generation() AS next_generation,
    failed_stage, error, resume_stage, forced, ended_at, raw_ref, replay_of, {{is_deleted}}
FROM jobs
WHERE corpus_key = %(corpus_key)s AND document_id = ANY(%(documents)s) AND job_type <> 'delete'
    AND status NOT IN ('done', 'failed')
ORDER BY id FOR UPDATE

-- name: lock_corpus_jobs
SELECT {{state_columns}}, next_generation() AS next_generation,
    failed_stage, error, resume_stage, forced, ended_at, raw_ref, replay_of, {{is_deleted}}
FROM jobs WHERE corpus_key = %(corpus_key)s AND job_type <> 'delete' AND status NOT IN ('done', 'failed')
ORDER BY id FOR UPDATE

-- What they add waits for the commit, and then sees the fence.
-- name: lock_open_crawls
SELECT id FROM crawls WHERE caller_id = %(caller_id)s AND open ORDER BY id FOR UPDATE

-- The documents' rows are locked. A page that is a duplicate of one of them is not read again for that.
-- name: fence_documents
WITH stone AS (
    INSERT INTO tombstones (id, generation, job_id, erased)
    SELECT DISTINCT one, %(generation)s::bigint, %(job_id)s, false FROM unnest(%(documents)s::text[]) AS one
    UNION ALL SELECT %(whole)s::text, %(generation)s::bigint, %(job_id)s, true WHERE %(whole)s::text IS NOT NULL ORDER BY 1
    ON CONFLICT (id) DO UPDATE SET generation = greatest(tombstones.generation, excluded.generation),
        job_id = excluded.job_id, erased = excluded.erased, at = now()
), alike AS (
    DELETE FROM duplicates WHERE document_id = ANY(%(documents)s) OR original = ANY(%(documents)s)
)
UPDATE documents SET min_generation = greatest(min_generation, %(generation)s::bigint + 1),
    fenced_at = CASE WHEN published IS NULL THEN now() END
WHERE document_id = ANY(%(documents)s)

-- name: deletion
SELECT job_id, generation, requested_at, removed, referred, what->>'kind' = 'everything' AS whole FROM deletions WHERE job_id = %(job_id)s FOR UPDATE

-- name: to_erase
SELECT id FROM tombstones WHERE job_id = %(job_id)s AND NOT erased ORDER BY id LIMIT %(most)s

-- Those without a row of their own, as of jobs that failed, are looked for when there is none with one. Each is erased once,
-- which its tombstone tells: a job whose submit was committed meanwhile leaves rows, and ends as canceled.
-- name: to_erase_of_corpus
WITH listed AS MATERIALIZED (
    SELECT document_id FROM documents
    WHERE corpus_id = (SELECT id FROM corpora WHERE corpus_key = %(corpus_key)s)
        AND NOT EXISTS (
            SELECT FROM tombstones AS t WHERE t.id = documents.document_id AND t.generation >= %(generation)s)
    ORDER BY id LIMIT %(most)s
)
SELECT document_id AS id FROM listed
UNION ALL SELECT document_id FROM (
    SELECT DISTINCT document_id FROM jobs
    WHERE NOT EXISTS (SELECT FROM listed) AND corpus_key = %(corpus_key)s AND document_id IS NOT NULL
        AND job_type <> 'delete' AND deleted_at IS NULL
        AND NOT EXISTS (
            SELECT FROM tombstones AS t WHERE t.id = jobs.document_id AND t.generation >= %(generation)s)
    LIMIT %(most)s
) AS rest

-- Everything the Orchestrator has of documents of before, in one statement. A row that a newer job needs as its fence stays.
-- An idempotency key stays used, for no request: the same one again is a conflict, and brings nothing back.
-- A message's id is that of its outbox row, with what became of it. Keys of objects are read from the JSON as text: a
-- cast to JSONB refuses what a document may contain.
-- name: erase_documents
WITH gone AS MATERIALIZED (
    SELECT id, batch_id, caller_id, submitted_by, raw_ref, canonical_url, chunk_count >= 256 AS is_long FROM jobs
    WHERE corpus_key = %(corpus_key)s AND document_id = ANY(%(documents)s) AND job_type <> 'delete'
        AND status IN ('done', 'failed') AND deleted_at IS NULL
        AND created_at <= %(requested_at)s AND coalesce(generation, 0) <= %(generation)s
), message AS (
    DELETE FROM outbox USING gone WHERE outbox.job_id = gone.id RETURNING outbox.id, outbox.payload, outbox.stage, gone.is_long
), result AS (
    DELETE FROM inbox USING message CROSS JOIN {{result_kinds}}
    WHERE inbox.message_id = message.id || kind.suffix RETURNING inbox.message_id
), letter AS (
    DELETE FROM dead_letters WHERE job_id IN (SELECT id FROM gone)
        OR job_id IS NULL AND substring(body FROM '"document_id":"([0-9a-f]{64})"') = ANY(%(documents)s)
    RETURNING body, body_ref
), answer AS (
    UPDATE idempotency_keys SET answer = '{}', body_sha256 = '' WHERE {{answers_of_gone}} RETURNING key
), link AS (
    DELETE FROM page_links WHERE document_id = ANY(%(documents)s) RETURNING document_id
), page AS (
    DELETE FROM crawl_pages USING gone
    WHERE crawl_id = gone.batch_id AND page = substring(sha256(convert_to(gone.canonical_url, 'UTF8')) FOR 16)
    RETURNING crawl_id
), job AS (
    UPDATE jobs SET url = 'deleted:' || document_id, canonical_url = 'deleted:' || document_id, title = NULL, raw_ref = NULL,
        corpus_name = CASE WHEN NOT %(whole)s THEN corpus_name END,
        determinism = NULL, metadata = NULL, previous = NULL, duplicate_of = NULL, last_error = NULL, deleted_at = now(),
        error = CASE WHEN error IS NOT NULL THEN error || '{"message": "Its document was deleted."}' END
    FROM gone WHERE jobs.id = gone.id RETURNING jobs.id
), catalogue AS (
    DELETE FROM documents
    WHERE document_id = ANY(%(documents)s) AND published IS NULL AND min_generation <= %(generation)s::bigint + 1
    RETURNING document_id
), stone AS (
    INSERT INTO tombstones AS t (id, generation, job_id, erased)
    SELECT DISTINCT one, %(generation)s::bigint, %(job_id)s, true FROM unnest(%(documents)s::text[]) AS one ORDER BY one
    ON CONFLICT (id) DO UPDATE SET generation = excluded.generation, job_id = excluded.job_id, erased = true
    WHERE t.generation <= excluded.generation RETURNING id
), reference AS (
    SELECT raw_ref#>>'{ref,key}' AS key FROM gone
    UNION SELECT body_ref->>'key' FROM letter
    UNION SELECT (regexp_matches(payload, '"key": ?"((?:raw|text|chunks|uploads)/[^"\\]+)"', 'g'))[1] FROM message
    UNION SELECT (regexp_matches(body, '"key": ?"((?:raw|text|chunks|uploads)/[^"\\]+)"', 'g'))[1] FROM letter
), prefix AS (
    SELECT split_part(key, '/', 1) AS name, count(*)::int AS count FROM reference WHERE key IS NOT NULL GROUP BY 1
)
SELECT jsonb_build_object(
        'documents', (SELECT count(*) FROM stone), 'jobs', (SELECT count(*) FROM job),
        'catalogue', (SELECT count(*) FROM catalogue), 'outbox', (SELECT count(*) FROM message),
        'inbox', (SELECT count(*) FROM result), 'dead_letters', (SELECT count(*) FROM letter),
        'idempotency_keys', (SELECT count(*) FROM answer), 'page_links', (SELECT count(*) FROM link),
        'crawl_pages', (SELECT count(*) FROM page)) AS removed,
    coalesce((SELECT jsonb_object_agg(name, count) FROM prefix), '{}') AS referred,
    ARRAY(SELECT key FROM reference WHERE key LIKE 'uploads/%%' OR key LIKE 'dead-letters/%%'
        UNION SELECT 'message:' || id FROM message WHERE stage = 'embedding' AND is_long
        UNION SELECT 'job:' || id FROM gone WHERE is_long
        UNION SELECT 'document:' || id FROM stone) AS objects,
    ARRAY(SELECT id FROM message) AS messages

-- Results of a message have its id with one of these behind it.
-- fragment: result_kinds
(
    SELECT ':result' AS suffix UNION ALL SELECT ':dead' UNION ALL SELECT ':retrying:' || n FROM generate_series(1, 100) AS n
) AS kind

-- fragment: answers_of_gone
caller_id IN (SELECT caller_id FROM gone UNION SELECT submitted_by FROM gone)
AND (answer->>'job_id' IN (SELECT id FROM gone) OR answer->'job_ids' ?| ARRAY(SELECT id FROM gone))

-- What a second look finds of what was deleted just now.
-- name: left_of_documents
WITH gone AS MATERIALIZED (
    SELECT id, url, raw_ref, caller_id, submitted_by FROM jobs
    WHERE corpus_key = %(corpus_key)s AND document_id = ANY(%(documents)s) AND deleted_at = now()
)
SELECT jsonb_build_object(
        'documents', (SELECT count(*) FROM documents WHERE document_id = ANY(%(documents)s) AND published <= %(generation)s),
        'jobs', (SELECT count(*) FROM gone WHERE url NOT LIKE 'deleted:%%'),
        'catalogue', (SELECT count(*) FROM documents WHERE document_id = ANY(%(documents)s)
                      AND published IS NULL AND min_generation <= %(generation)s::bigint + 1),
        'outbox', (SELECT count(*) FROM outbox WHERE job_id IN (SELECT id FROM gone)),
        'inbox', (SELECT count(*) FROM unnest(%(messages)s::text[]) AS message (id) CROSS JOIN {{result_kinds}}
                  JOIN inbox ON inbox.message_id = message.id || kind.suffix),
        'dead_letters', (SELECT count(*) FROM dead_letters WHERE job_id IN (SELECT id FROM gone)),
        'idempotency_keys', (SELECT count(*) FROM idempotency_keys WHERE {{answers_of_gone}}),
        'page_links', (SELECT count(*) FROM page_links WHERE document_id = ANY(%(documents)s)),
        'crawl_pages', (SELECT count(*) FROM crawl_pages WHERE job_id IN (SELECT id FROM gone))) AS removed,
    (SELECT count(*) FROM gone WHERE raw_ref IS NOT NULL)::int AS referred

-- The ids of documents are kept here, and not read from the tombstones in the end: a later deletion takes those over.
-- name: keep_erased
UPDATE deletions SET removed = %(removed)s, referred = %(referred)s,
    objects = ARRAY(SELECT DISTINCT unnest(objects || %(objects)s::text[]))
WHERE job_id = %(job_id)s

-- The job has no message from here on, and waits for the sweeper.
-- name: end_erasing
WITH deletion AS (
    UPDATE deletions SET erased_at = now() WHERE job_id = %(job_id)s
), message AS (
    DELETE FROM outbox WHERE job_id = %(job_id)s
), counted AS (
    DELETE FROM erasures WHERE job_id = %(job_id)s
)
UPDATE jobs SET updated_at = now(), next_retry_at = now() + interval '1 minute' WHERE id = %(job_id)s

-- Unless it is in use again: documents, and jobs that were submitted since. Its name goes with it.
-- name: erase_corpus
WITH gone AS (
    DELETE FROM corpora WHERE corpus_key = %(corpus_key)s
        AND NOT EXISTS (SELECT FROM documents WHERE corpus_id = corpora.id)
        AND NOT EXISTS (SELECT FROM jobs WHERE jobs.corpus_key = corpora.corpus_key AND job_type <> 'delete'
                        AND deleted_at IS NULL)
    RETURNING id
), totals AS (
    DELETE FROM corpus_totals USING gone WHERE corpus = gone.id
), job AS (
    UPDATE jobs SET corpus_name = NULL WHERE id = %(job_id)s
)
SELECT count(*)::int AS gone FROM gone

-- name: deletions_to_report
SELECT d.job_id, d.caller_id, d.what, d.requested_at, d.erased_at, d.removed, d.referred, d.objects
FROM deletions AS d WHERE erased_at IS NOT NULL AND reported_at IS NULL ORDER BY erased_at LIMIT %(most)s

-- name: end_deletion
WITH deletion AS (
    UPDATE deletions SET reported_at = now(), report = %(report)s, objects = '{}'
    WHERE job_id = %(job_id)s AND reported_at IS NULL RETURNING job_id
), job AS (
    UPDATE jobs SET status = 'done', updated_at = now(), ended_at = now(), next_retry_at = NULL, tries = 0
    FROM deletion WHERE jobs.id = deletion.job_id AND status NOT IN ('done', 'failed')
    RETURNING jobs.id, attempt, job_type, payload_digest, request_id
), transition AS (
    SELECT id AS job_id, attempt, 'embedding' AS from_status, 'done' AS to_status, 'deleted' AS cause,
        NULL::jsonb AS detail, {{no_work}}, job_type, payload_digest, request_id
    FROM job
), history AS (
    {{insert_history}}
)
SELECT id FROM job

-- name: report
SELECT report FROM deletions JOIN jobs ON jobs.id = deletions.job_id
WHERE deletions.job_id = %(job_id)s AND jobs.caller_id = %(caller_id)s

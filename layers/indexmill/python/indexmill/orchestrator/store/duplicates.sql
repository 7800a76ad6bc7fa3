-- Statements of duplicates: pages with the text of another document that they name.

-- Of a row `d`: its original is published with the same text, is not stale, and is no duplicate itself. A page that is
-- no duplicate yet may name one: its original counts then.
-- fragment: has_original
EXISTS (
    SELECT FROM (
        SELECT d.original AS document_id
        UNION ALL SELECT other.original FROM duplicates AS other
        WHERE other.document_id = d.original AND other.holds AND NOT d.holds
    ) AS named
    JOIN documents AS o USING (document_id) JOIN jobs AS j ON j.id = o.job_id
    WHERE named.document_id <> d.document_id AND o.published IS NOT NULL AND o.chunk_count > 0 AND o.stale_since IS NULL
        AND j.determinism->>'text_sha256' = d.text_sha256
        AND NOT EXISTS (SELECT FROM duplicates AS other WHERE other.document_id = named.document_id AND other.holds))

-- Its page is published beside the original, or it is not and there is no original any more.
-- fragment: is_outdated
(CASE WHEN {{has_original}} THEN EXISTS (
    SELECT FROM documents AS own
    WHERE own.document_id = d.document_id AND own.published IS NOT NULL AND own.chunk_count > 0
) ELSE d.holds END)

-- Locked in the order of ids; those that were never published have no row.
-- name: lock_originals
SELECT document_id FROM documents WHERE document_id = ANY(%(documents)s) ORDER BY document_id FOR UPDATE

-- Those of the documents that are duplicates now with their originals, and these with theirs.
-- name: originals_of
WITH RECURSIVE chain AS (
    SELECT document_id, original FROM duplicates WHERE document_id = ANY(%(documents)s) AND holds
    UNION SELECT d.document_id, d.original FROM chain JOIN duplicates AS d ON d.document_id = chain.original WHERE d.holds
)
SELECT document_id, original FROM chain

-- What search has of documents, once they are locked.
-- name: published_texts
SELECT d.document_id, coalesce(job.canonical_url, job.url) AS url, d.stale_since IS NOT NULL AS stale, job.determinism->>'text_sha256' AS text_sha256
FROM documents AS d JOIN jobs AS job ON job.id = d.job_id
WHERE d.document_id = ANY(%(documents)s) AND d.published IS NOT NULL AND d.chunk_count > 0

-- In place of what was known of the pages that were read.
-- name: keep_duplicates
WITH given AS (
    SELECT * FROM unnest(%(documents)s::text[], %(originals)s::text[], %(texts)s::text[], %(holds)s::boolean[],
                         %(jobs)s::text[]) AS t(document_id, original, text_sha256, holds, job_id)
), gone AS (
    DELETE FROM duplicates AS d WHERE d.document_id = ANY(%(read)s)
        AND NOT EXISTS (SELECT FROM given WHERE given.document_id = d.document_id AND given.original = d.original)
)
INSERT INTO duplicates (document_id, original, text_sha256, holds, job_id)
SELECT * FROM given ORDER BY document_id, original
ON CONFLICT (document_id, original) DO UPDATE
    SET text_sha256 = excluded.text_sha256, holds = excluded.holds, job_id = excluded.job_id, due_at = NULL

-- Of pages, and of originals, whose jobs ended. Not more often than each ten minutes, or each day when the page could not
-- be read.
-- name: mark_outdated
UPDATE duplicates AS d SET due_at = CASE WHEN d.document_id = ANY(%(unread)s) THEN now() + interval '1 day'
    ELSE greatest(now(), d.read_at + interval '10 minutes') END
WHERE (d.document_id = ANY(%(pages)s) OR d.original = ANY(%(originals)s)) AND d.due_at IS NULL AND {{is_outdated}}

-- A row that is locked is being decided about just now. What is no longer outdated is left as it is.
-- name: due_duplicates
WITH due AS (
    SELECT document_id, original FROM duplicates WHERE due_at <= now() ORDER BY due_at LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
), looked AS (
    UPDATE duplicates AS d SET due_at = NULL, read_at = now() FROM due
    WHERE d.document_id = due.document_id AND d.original = due.original
    RETURNING d.document_id, d.holds, d.job_id, {{is_outdated}} AS outdated
)
SELECT DISTINCT ON (looked.document_id) looked.document_id, jobs.id AS job_id, jobs.caller_id, jobs.tier, jobs.mark_stale,
    NOT looked.holds AND coalesce((jobs.raw_ref->>'stored_at')::timestamptz > now() - interval '1 day', false) AS is_kept
FROM looked JOIN jobs ON jobs.id = looked.job_id WHERE looked.outdated
ORDER BY looked.document_id, looked.holds DESC

-- Another job of the page is in flight: what that finds is awaited.
-- name: put_off_duplicate
UPDATE duplicates SET due_at = now() + interval '10 minutes' WHERE document_id = %(document_id)s

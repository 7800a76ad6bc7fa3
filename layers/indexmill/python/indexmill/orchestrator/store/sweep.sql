-- The sweeper's statements, each safe beside another sweeper's.
--
-- None depends on statistics, which a database that was just filled or restored lacks: OFFSET 0 keeps the planner
-- from joining in another order, and a lower limit that every time is above tells it that few rows match.

-- name: now
SELECT now() AS at

-- fragment: since_ever
>= '-infinity'::timestamptz

-- A deletion whose rows are gone has no message any more: the sweeper itself ends it.
-- fragment: awaits_report
(job_type = 'delete' AND EXISTS (
    SELECT FROM deletions WHERE deletions.job_id = jobs.id AND erased_at IS NOT NULL OFFSET 0
))

-- name: count_unaccounted
SELECT status AS stage, count(*) AS count FROM jobs
WHERE status = ANY(%(stages)s) AND NOT EXISTS (
    SELECT FROM outbox AS o
    WHERE o.job_id = jobs.id AND o.attempt = jobs.attempt AND o.stage = jobs.status
        AND o.parked_at IS NULL AND (o.sent_at IS NULL OR o.sent_at > %(before)s)
    OFFSET 0
) AND NOT {{awaits_report}}
GROUP BY status

-- name: last_counts
SELECT stage, missing, counted_at AS at FROM sweep_state WHERE stage = ANY(%(stages)s) ORDER BY stage FOR UPDATE

-- The first counts of all have no row to lock: of two sweepers at once, the second one's change nothing.
-- name: keep_counts
INSERT INTO sweep_state (stage, missing, counted_at)
SELECT * FROM unnest(%(stages)s::text[], %(missing)s::int[], %(at)s::timestamptz[])
ON CONFLICT (stage) DO UPDATE SET missing = excluded.missing, counted_at = excluded.counted_at
WHERE sweep_state.counted_at < excluded.counted_at

-- How far each caller has got in a stage: when the newest message was sent whose job has left the stage.
-- Queues keep the order of one caller's messages roughly: what was sent a minute earlier should be done too.
-- fragment: reached
reached AS (
    SELECT o.stage, o.caller_id, max(o.sent_at) - interval '60 seconds' AS until
    FROM outbox AS o JOIN jobs ON jobs.id = o.job_id
    WHERE o.stage = ANY(%(stages)s) AND o.created_at > now() - interval '1 day' AND o.sent_at IS NOT NULL
        AND (jobs.status <> o.stage OR jobs.attempt <> o.attempt)
    GROUP BY o.stage, o.caller_id
)

-- fragment: newest_message
LEFT JOIN LATERAL (
    SELECT o.id, o.sent_at, o.parked_at, o.rescues FROM outbox AS o
    WHERE o.job_id = jobs.id AND o.attempt = jobs.attempt AND o.stage = jobs.status
    ORDER BY o.created_at DESC LIMIT 1
) AS kept ON true

-- fragment: stale_columns
jobs.id AS job_id, jobs.caller_id, jobs.status AS stage, jobs.attempt, jobs.url, jobs.updated_at,
    now() - jobs.updated_at AS stuck_for, kept.id AS message_id, coalesce(kept.rescues, 0) AS rescues,
    coalesce(kept.parked_at IS NOT NULL, false) AS parked

-- A job that said when its next try is is the least likely to have lost its message.
-- name: find_stale
WITH {{reached}}
SELECT {{stale_columns}}
FROM jobs {{newest_message}}
LEFT JOIN reached ON reached.stage = jobs.status AND reached.caller_id = jobs.caller_id
WHERE jobs.status = ANY(%(stages)s) AND (kept.parked_at IS NOT NULL OR kept.sent_at <= %(before)s)
    AND (NOT %(overtaken)s OR kept.parked_at IS NOT NULL OR kept.sent_at < reached.until
         OR jobs.updated_at < now() - interval '30 minutes')
ORDER BY kept.parked_at IS NULL, kept.rescues >= {{most_rescues}},
    coalesce(jobs.next_retry_at > now(), false), jobs.updated_at, jobs.id
LIMIT %(limit)s

-- A job that moved lately is found by an index: this runs every minute, also with thousands of jobs in flight.
-- name: count_overtaken
WITH reached AS (
    SELECT o.stage, o.caller_id, max(o.sent_at) - interval '60 seconds' AS until
    FROM jobs JOIN outbox AS o ON o.job_id = jobs.id
    WHERE jobs.status = ANY(%(any_status)s) AND jobs.updated_at > now() - %(silence)s::interval
        AND o.stage = ANY(%(stages)s) AND o.sent_at IS NOT NULL
        AND (jobs.status <> o.stage OR jobs.attempt <> o.attempt)
    GROUP BY o.stage, o.caller_id
)
SELECT jobs.status AS stage, count(*) AS count FROM jobs
JOIN reached ON reached.stage = jobs.status AND reached.caller_id = jobs.caller_id
WHERE jobs.status = ANY(%(stages)s) AND jobs.updated_at < now() - %(silence)s::interval
    AND coalesce(jobs.next_retry_at <= now(), true) AND (
        SELECT o.sent_at <= %(before)s AND o.sent_at < reached.until FROM outbox AS o
        WHERE o.job_id = jobs.id AND o.attempt = jobs.attempt AND o.stage = jobs.status
            AND o.parked_at IS NULL
        ORDER BY o.created_at DESC LIMIT 1
    )
GROUP BY jobs.status

-- name: any_stale
SELECT EXISTS (
    SELECT FROM jobs WHERE status = ANY(%(stages)s) AND updated_at < now() - %(silence)s::interval
) AS found

-- The product's own query for stuck jobs (not ended, no event for 30 minutes, the oldest first), less those
-- that wait for a reason: to be admitted, to be sent, for their next try, or for their turn in a queue.
-- name: stuck
WITH {{reached}}
SELECT {{stale_columns}}
FROM jobs {{newest_message}}
LEFT JOIN reached ON reached.stage = jobs.status AND reached.caller_id = jobs.caller_id
WHERE jobs.status NOT IN ('done', 'failed') AND jobs.updated_at < now() - interval '30 minutes'
    AND jobs.status <> 'pending' AND jobs.status = ANY(%(stages)s) AND NOT {{awaits_report}}
    AND (kept.id IS NULL OR kept.sent_at IS NOT NULL OR kept.parked_at IS NOT NULL)
    AND (jobs.next_retry_at IS NULL OR jobs.next_retry_at < now() - interval '30 minutes')
    AND (jobs.status = ANY(%(empty)s) OR kept.id IS NULL OR kept.parked_at IS NOT NULL
         OR kept.sent_at < reached.until)
ORDER BY jobs.updated_at LIMIT %(limit)s

-- In the order of ids, like every other lock on several jobs; a locked one is just being moved on.
-- name: send_again
WITH chosen AS (
    SELECT jobs.id, seen.message_id
    FROM unnest(%(job_ids)s::text[], %(message_ids)s::text[], %(updated_at)s::timestamptz[]) AS seen(job_id, message_id, updated_at)
    JOIN jobs ON jobs.id = seen.job_id AND jobs.updated_at = seen.updated_at
    WHERE jobs.status NOT IN ('done', 'failed')
    ORDER BY jobs.id FOR UPDATE OF jobs SKIP LOCKED
), touched AS (
    UPDATE jobs SET updated_at = now() FROM chosen WHERE jobs.id = chosen.id
)
UPDATE outbox SET sent_at = NULL, parked_at = NULL, tries = 0, rescues = rescues + 1, claimed_until = now()
FROM chosen WHERE outbox.id = chosen.message_id RETURNING outbox.id

-- Those of jobs that wait for them: a message that is no longer needed is parked as well.
-- name: count_parked
SELECT count(*) AS count FROM outbox AS o
CROSS JOIN LATERAL (
    SELECT FROM jobs WHERE id = o.job_id AND attempt = o.attempt AND status = o.stage OFFSET 0
) AS waiting
WHERE o.parked_at {{since_ever}} AND o.parked_at <= 'infinity'::timestamptz

-- fragment: old_messages
outbox AS o
    CROSS JOIN LATERAL (
        SELECT FROM jobs WHERE id = o.job_id AND ended_at < now() - %(payloads)s::interval OFFSET 0
    ) AS ended
    WHERE o.created_at {{since_ever}} AND o.created_at < now() - %(payloads)s::interval

-- None of its jobs can be tried again from what is kept. OFFSET 0 has the planner look up each crawl's jobs.
-- fragment: old_crawls
crawls WHERE created_at {{since_ever}} AND created_at < now() - %(payloads)s::interval AND NOT EXISTS (
    SELECT FROM jobs WHERE jobs.batch_id = crawls.id
        AND (ended_at IS NULL OR ended_at >= now() - %(payloads)s::interval)
    OFFSET 0
)

-- name: has_old_rows
SELECT 'outbox' AS kind, EXISTS (
    SELECT FROM {{old_messages}}
) AS found
UNION ALL SELECT 'inbox', EXISTS (
    SELECT FROM inbox WHERE received_at {{since_ever}} AND received_at < now() - %(inbox)s::interval
)
UNION ALL SELECT 'idempotency_keys', EXISTS (
    SELECT FROM idempotency_keys WHERE created_at {{since_ever}} AND created_at < now() - %(keys)s::interval
)
UNION ALL SELECT 'dead_letters', EXISTS (
    SELECT FROM dead_letters WHERE received_at < now() - %(letters)s::interval
)
UNION ALL SELECT 'earlier_starts', EXISTS (
    SELECT FROM earlier_starts WHERE started_at {{since_ever}} AND started_at < now() - %(starts)s::interval
)
UNION ALL SELECT 'fences', EXISTS (
    SELECT FROM documents WHERE fenced_at {{since_ever}} AND fenced_at < now() - %(inbox)s::interval
)
UNION ALL SELECT 'crawls', EXISTS (SELECT FROM {{old_crawls}})
UNION ALL SELECT 'tombstones', EXISTS (
    SELECT FROM tombstones WHERE at {{since_ever}} AND at < now() - %(tombstones)s::interval
)
UNION ALL SELECT 'page_links', EXISTS (
    SELECT FROM page_links WHERE used_at {{since_ever}} AND used_at < now() - %(links)s::interval
)

-- Of each kind at most a batch, which is chosen once: a subquery of the condition may be run again for every row.
-- name: purge_outbox
WITH old AS (
    SELECT o.id FROM {{old_messages}}
        AND (o.sent_at IS NOT NULL OR o.parked_at IS NOT NULL)
    LIMIT %(limit)s FOR UPDATE OF o SKIP LOCKED
)
DELETE FROM outbox USING old WHERE outbox.id = old.id

-- name: purge_inbox
WITH old AS (
    SELECT message_id FROM inbox WHERE received_at < now() - %(inbox)s::interval
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM inbox USING old WHERE inbox.message_id = old.message_id

-- name: purge_idempotency_keys
WITH old AS (
    SELECT caller_id, key FROM idempotency_keys WHERE created_at < now() - %(keys)s::interval
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_keys USING old WHERE idempotency_keys.caller_id = old.caller_id AND idempotency_keys.key = old.key

-- name: purge_earlier_starts
WITH old AS (
    SELECT job_id, attempt FROM earlier_starts WHERE started_at < now() - %(starts)s::interval
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM earlier_starts USING old WHERE earlier_starts.job_id = old.job_id AND earlier_starts.attempt = old.attempt

-- name: purge_dead_letters
WITH old AS (
    SELECT l.id FROM dead_letters AS l
    WHERE l.received_at < now() - %(letters)s::interval AND NOT EXISTS (
        SELECT FROM jobs WHERE jobs.id = l.job_id
            AND (jobs.ended_at IS NULL OR jobs.ended_at >= now() - %(payloads)s::interval)
    )
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM dead_letters USING old WHERE dead_letters.id = old.id

-- A document that was fenced and published after all stays, and is not looked at again.
-- name: purge_fences
WITH old AS (
    SELECT id, published FROM documents WHERE fenced_at < now() - %(inbox)s::interval
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), published AS (
    UPDATE documents SET fenced_at = NULL FROM old WHERE documents.id = old.id AND old.published IS NOT NULL
)
DELETE FROM documents USING old WHERE documents.id = old.id AND old.published IS NULL

-- With their pages, which is what counts: a crawl has up to 1,000. Those of a crawl that is locked are being added.
-- name: purge_crawls
WITH old AS (
    SELECT id FROM {{old_crawls}} LIMIT greatest(%(limit)s / 20, 1) FOR UPDATE SKIP LOCKED
), crawl AS (
    DELETE FROM crawls USING old WHERE crawls.id = old.id
)
DELETE FROM crawl_pages USING old WHERE crawl_pages.crawl_id = old.id

-- name: purge_tombstones
WITH old AS (
    SELECT id FROM tombstones WHERE at < now() - %(tombstones)s::interval AND erased
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM tombstones USING old WHERE tombstones.id = old.id

-- name: purge_page_links
WITH old AS (
    SELECT document_id FROM page_links WHERE used_at < now() - %(links)s::interval
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM page_links USING old WHERE page_links.document_id = old.document_id

-- Locked by the one sweeper that writes into the log now.
-- name: last_audit_logged
SELECT xact::text, seq FROM audit_logged FOR UPDATE SKIP LOCKED

-- In the order of transactions, up to the first that is still open.
-- name: audit_to_log
SELECT xact::text, seq, at, event, caller_id, caller_type, tier, fields FROM audit_events
WHERE (xact, seq) > (%(xact)s::xid8, %(seq)s::bigint) AND xact < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY xact, seq LIMIT %(limit)s

-- name: keep_audit_logged
UPDATE audit_logged SET xact = %(xact)s::xid8, seq = %(seq)s

-- name: count_old_corpora
SELECT count_old_corpora(%(corpora)s, %(chunks)s) AS count

-- name: index_builds_due
SELECT count(*) AS count FROM index_builds_due('1 hour')

-- A document without chunks has no vectors. None is read while no other model was ever used.
-- name: other_models
SELECT model, dimension, count(*)::int AS documents, count(DISTINCT corpus_id)::int AS corpora FROM documents
WHERE published IS NOT NULL AND chunk_count > 0 AND (model, dimension) <> (%(model)s, %(dimension)s)
    AND EXISTS (SELECT FROM spaces AS s WHERE (s.model, s.dimension) <> (%(model)s, %(dimension)s))
GROUP BY model, dimension

-- name: pauses
SELECT stage, reason FROM pauses

-- name: interruptions
SELECT DISTINCT kind, subject FROM incidents
WHERE kind IN ('paused', 'breaker_open') AND (closed_at IS NULL OR closed_at > now() - %(since)s::interval)

-- name: open_incidents
SELECT subject FROM incidents WHERE kind = %(kind)s AND closed_at IS NULL

-- name: insert_incidents
INSERT INTO incidents (kind, subject, detail)
SELECT %(kind)s, subject, detail FROM unnest(%(subjects)s::text[], %(details)s::jsonb[]) AS current(subject, detail)
ON CONFLICT (kind, subject) WHERE closed_at IS NULL DO NOTHING
RETURNING subject

-- name: close_incidents
UPDATE incidents SET closed_at = now()
WHERE kind = %(kind)s AND closed_at IS NULL AND subject <> ALL(%(subjects)s::text[]) RETURNING subject

-- Rows that the state table has no copy of; blocked callers first, then aliases.
-- name: unmirrored
SELECT caller_id, root, blocked_reason, unblocked_at IS NOT NULL AS unblocked, version FROM callers
WHERE NOT mirrored ORDER BY blocked_at IS NULL, root = caller_id, caller_id LIMIT %(limit)s

-- name: unmirrored_maintenance
SELECT message, version FROM maintenance WHERE NOT mirrored

-- A row that was changed meanwhile is copied again.
-- name: mark_mirrored
UPDATE callers SET mirrored = true
FROM unnest(%(ids)s::text[], %(versions)s::bigint[]) AS copied (caller_id, version)
WHERE callers.caller_id = copied.caller_id AND callers.version = copied.version

-- name: mark_maintenance_mirrored
UPDATE maintenance SET mirrored = true WHERE version = %(version)s

-- name: mirror_all
WITH every AS (UPDATE callers SET mirrored = false WHERE mirrored)
UPDATE maintenance SET mirrored = false

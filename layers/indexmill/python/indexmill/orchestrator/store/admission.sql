-- Statements of a submit and of admission.

-- A key counts for a day. A concurrent second submit waits here until the first one has committed.
-- name: take_key
INSERT INTO idempotency_keys (caller_id, key, body_sha256, answer)
VALUES (%(caller_id)s, %(key)s, %(digest)s, '{}')
ON CONFLICT (caller_id, key) DO UPDATE
    SET body_sha256 = excluded.body_sha256, answer = excluded.answer, created_at = now()
    WHERE idempotency_keys.created_at <= now() - interval '24 hours'
RETURNING key

-- name: kept_answer
SELECT body_sha256 AS digest, answer::text AS answer FROM idempotency_keys
WHERE caller_id = %(caller_id)s AND key = %(key)s

-- name: keep_answer
UPDATE idempotency_keys SET answer = %(answer)s::jsonb WHERE caller_id = %(caller_id)s AND key = %(key)s

-- Payloads are sent in binary: as text, each character of a document would be looked at for quoting.
-- A document that another job is in flight for is left out: the unique index jobs_in_flight decides.
-- A message gets the raw content of its document's published version, by the job that published it or found it
-- unchanged last; and whether that version has vectors of today's model (the recipe), despite the same
-- doubts (accept), is not empty since it was a duplicate, and its links are known where they are wanted, and not deleted
-- (Retention.links) before the job ends. What the release before published has no digest: it is processed again.
-- A crawl adds no page that was deleted since it began.
-- Nothing is inserted for an alias: link_callers (sql/0021_callers.sql) moved what it had.
-- Nothing is inserted either when the corpus of the name has another key than the one that the documents' ids are made of;
-- each row has the right one. A corpus that has as many chunks as it may takes no new documents. The pages of a crawl and replays stay with the corpus of their first job (owner NULL).
-- name: insert_jobs
WITH named AS MATERIALIZED (
    SELECT CASE WHEN %(owner)s::text IS NULL THEN %(corpus_key)s
                ELSE key_of_corpus(%(owner)s, %(corpus_name)s) END AS key
), quota AS MATERIALIZED (
    SELECT CASE WHEN %(most_chunks)s::int8 IS NULL THEN false ELSE (
        SELECT coalesce(sum(t.chunks), 0) >= %(most_chunks)s
        FROM corpora AS c JOIN corpus_totals AS t ON t.corpus = c.id WHERE c.corpus_key = %(corpus_key)s) END AS reached
), new AS (
    SELECT * FROM unnest(%(job_ids)b::text[], %(urls)b::text[], %(canonical)b::text[],
                         %(documents)b::text[], %(outbox_ids)b::text[], %(payloads)b::text[],
                         %(priorities)b::int[], %(forced_jobs)s::boolean[], %(digests)b::text[],
                         %(expected)s::timestamptz[], %(given)b::jsonb[], %(sites)b::text[],
                         %(eligible)s::timestamptz[])
        AS t(job_id, url, canonical_url, document_id, outbox_id, payload, priority, forced, payload_digest,
             expected_by, given, site, eligible_at)
    WHERE NOT EXISTS (SELECT FROM callers WHERE caller_id = %(caller_id)s AND root <> caller_id)
        AND (SELECT key FROM named) = %(corpus_key)s
        AND (NOT (SELECT reached FROM quota)
             OR (SELECT published FROM documents WHERE documents.document_id = t.document_id) IS NOT NULL)
        AND NOT EXISTS (
            SELECT FROM (SELECT created_at FROM crawls WHERE id = %(batch_id)s OFFSET 0) AS crawl JOIN tombstones ON
                tombstones.id IN (document_id, %(corpus_key)s) AND tombstones.at > crawl.created_at)
), before AS (
    SELECT one.document_id, version.*
    FROM (SELECT DISTINCT document_id FROM new) AS one
    CROSS JOIN LATERAL (
        SELECT published.raw_ref, jsonb_build_object(
                'job_id', published.id, 'title', published.title, 'chunk_count', published.chunk_count,
                'facts', coalesce(published.determinism, '{}')) AS previous,
            coalesce(documents.content_sha256 = published.determinism->>'content_sha256' AND documents.chunk_count > 0
                     AND documents.text_generation = documents.published
                     AND published.determinism @> %(recipe)s::jsonb, false)
                AND published.determinism->'accept' IS NOT DISTINCT FROM to_jsonb(%(accept)b::text[])
                AND (NOT %(linked)s OR EXISTS (
                    SELECT FROM page_links WHERE page_links.document_id = documents.document_id
                        AND page_links.content_sha256 = documents.content_sha256
                        AND page_links.used_at > now() - interval '90 days')) AS current
        FROM documents JOIN jobs AS published ON published.id = documents.job_id
        WHERE documents.document_id = one.document_id AND documents.published IS NOT NULL
        OFFSET 0
    ) AS version
), corpus AS (
    INSERT INTO corpora (corpus_key, caller_id, name)
    SELECT %(corpus_key)s, %(caller_id)s, %(corpus_name)s
    WHERE NOT EXISTS (SELECT FROM corpora WHERE corpus_key = %(corpus_key)s) AND EXISTS (SELECT FROM new)
    ON CONFLICT (corpus_key) DO NOTHING
), job AS (
    INSERT INTO jobs (id, status, caller_id, url, corpus_name, batch_id, corpus_key, document_id,
                      canonical_url, tier, job_type, priority, forced, payload_digest, replay_of,
                      expected_by, request_id, budget, caller_type, submitted_by, raw_ref, previous, mark_stale,
                      metadata, accept, kind, site, next_eligible_at, blocked_by)
    SELECT new.job_id, 'pending', %(caller_id)s, url, %(corpus_name)s, %(batch_id)s, %(corpus_key)s,
           new.document_id, canonical_url, %(tier)s, %(job_type)s, priority, forced, payload_digest,
           %(replay_of)s, expected_by, %(request_id)s, %(budget)s,
           %(caller_type)s, %(submitted_by)s, given, before.previous, %(mark_stale)s,
           %(metadata)s::jsonb, %(accept)b::text[], %(kind)s, site, eligible_at, CASE WHEN eligible_at IS NOT NULL THEN 'domain' END
    FROM new LEFT JOIN before ON before.document_id = new.document_id
    ORDER BY new.document_id ON CONFLICT DO NOTHING RETURNING id
), transition AS (
    SELECT new.job_id, 1 AS attempt, NULL::text AS from_status, 'pending' AS to_status, 'submitted' AS cause,
        NULL::jsonb AS detail, {{no_stage_work}}, %(spent)s::jsonb AS spent, %(job_type)s AS job_type, new.payload_digest,
        %(request_id)s::text AS request_id
    FROM new JOIN job ON job.id = new.job_id
), history AS (
    {{insert_history}}
), message AS (
    INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
    SELECT outbox_id, job_id, %(caller_id)s, 1, %(first)s, 'queue',
        coalesce((
            SELECT (payload::jsonb || '{"published": true}' || CASE WHEN raw_ref->>'stored_at' IS NOT NULL
                THEN jsonb_build_object('known', raw_ref, 'current', current AND NOT forced) ELSE '{}' END)::text
            FROM before
            WHERE before.document_id = new.document_id
        ), payload), {{until_admission}}
    FROM new JOIN job ON job.id = new.job_id
)
SELECT named.key AS corpus_key, quota.reached AND (SELECT count(*) FROM new) < %(asked)s AS full, job.id
FROM named CROSS JOIN quota LEFT JOIN job ON true

-- name: root_of
SELECT root_of(%(caller_id)s) AS root

-- name: add_alias
INSERT INTO callers (caller_id, root, linked_at) VALUES (%(alias)s, %(root)s, now()) ON CONFLICT DO NOTHING

-- The job in flight for each document; or the job itself, when a lost answer made the work run twice.
-- name: jobs_in_flight
SELECT document_id, id, status, CASE WHEN expected_by > now() THEN expected_by END AS expected_by, caller_id, raw_ref,
    accept, metadata
FROM jobs
WHERE document_id = ANY(%(documents)s)
    AND (status NOT IN ('done', 'failed') AND NOT forced OR id = ANY(%(job_ids)s))

-- Locked until the commit, so that none of them ends without seeing its new dependents.
-- name: lock_dependencies
WITH known AS (
    SELECT id FROM jobs WHERE id = ANY(%(job_ids)s) AND caller_id = %(caller_id)s ORDER BY id FOR UPDATE
)
UPDATE jobs SET has_dependents = true FROM known WHERE jobs.id = known.id RETURNING jobs.id, jobs.status

-- name: insert_dependencies
INSERT INTO job_dependencies (job_id, depends_on)
SELECT job_id, depends_on
FROM unnest(%(job_ids)b::text[]) AS a(job_id), unnest(%(depends_on)b::text[]) AS b(depends_on)
ON CONFLICT DO NOTHING

-- name: block_jobs
UPDATE jobs SET blocked_by = 'dependency' WHERE id = ANY(%(job_ids)s)

-- Edges lead to older jobs only, so there is no cycle; should there be one all the same, it is found here.
-- name: has_cycle
WITH RECURSIVE reached AS (
    SELECT depends_on FROM job_dependencies WHERE job_id = ANY(%(job_ids)s)
    UNION
    SELECT edge.depends_on FROM reached CROSS JOIN LATERAL (
        SELECT depends_on FROM job_dependencies WHERE job_id = reached.depends_on OFFSET 0
    ) AS edge
)
SELECT EXISTS (SELECT FROM reached WHERE depends_on = ANY(%(job_ids)s)) AS found

-- Locked, so that a job that may start now is not counted by two others of which each is its last.
-- name: unmet_dependencies
SELECT jobs.id, jobs.status FROM jobs
WHERE id IN (SELECT depends_on FROM job_dependencies WHERE job_id = %(job_id)s) AND status <> 'done'
ORDER BY id FOR UPDATE

-- Pending jobs that wait for these, directly or through others. Locked before they are counted: of two
-- dependencies that end at the same time the later one sees both ends. OFFSET 0 and the array have the planner look
-- up one edge and one job after the other, those of the first step too: without statistics it would read all that
-- there are.
-- name: lock_dependents
WITH RECURSIVE waiting AS (
    SELECT edge.job_id FROM unnest(%(job_ids)b::text[]) AS ended(id) CROSS JOIN LATERAL (
        SELECT job_id FROM job_dependencies WHERE depends_on = ended.id OFFSET 0
    ) AS edge
    UNION
    SELECT edge.job_id FROM waiting CROSS JOIN LATERAL (
        SELECT job_id FROM job_dependencies WHERE depends_on = waiting.job_id OFFSET 0
    ) AS edge
)
SELECT id FROM jobs WHERE id = ANY (ARRAY(SELECT job_id FROM waiting)) AND status = 'pending' ORDER BY id FOR UPDATE

-- A job that depends on a failed one fails, and so do those that depend on it.
-- name: fail_dependents
WITH RECURSIVE lost AS (
    SELECT edge.job_id, edge.depends_on FROM job_dependencies edge
    JOIN jobs dependency ON dependency.id = edge.depends_on AND dependency.status = 'failed'
    JOIN jobs waiting ON waiting.id = edge.job_id AND waiting.status = 'pending'
    WHERE edge.job_id = ANY(%(job_ids)s)
    UNION
    SELECT edge.job_id, edge.depends_on FROM lost
    JOIN job_dependencies edge ON edge.depends_on = lost.job_id
    JOIN jobs waiting ON waiting.id = edge.job_id AND waiting.status = 'pending'
), one AS (
    SELECT job_id, min(depends_on) AS depends_on FROM lost GROUP BY job_id
), job AS (
    UPDATE jobs SET status = 'failed', failed_stage = coalesce(resume_stage, %(first)s), blocked_by = NULL,
        next_eligible_at = NULL, updated_at = now(), ended_at = now(),
        error = jsonb_build_object(
            'stage', coalesce(resume_stage, %(first)s), 'code', 'dependency_failed', 'at', now(),
            'message', 'Job ' || one.depends_on || ', which this one depends on, failed.')
    FROM one WHERE jobs.id = one.job_id
    RETURNING jobs.id, jobs.attempt, jobs.error, jobs.job_type, jobs.payload_digest, jobs.request_id
), transition AS (
    SELECT id AS job_id, attempt, 'pending' AS from_status, 'failed' AS to_status, 'dependency failed' AS cause,
        error AS detail, {{no_work}}, job_type, payload_digest, request_id
    FROM job
), history AS (
    {{insert_history}}
), parked AS (
    UPDATE outbox SET parked_at = now(), last_error = 'dependency failed' FROM job
    WHERE outbox.job_id = job.id AND outbox.sent_at IS NULL AND outbox.parked_at IS NULL
)
SELECT id FROM job

-- name: unblock_jobs
UPDATE jobs SET blocked_by = NULL, updated_at = now()
WHERE id = ANY(%(job_ids)s) AND status = 'pending' AND blocked_by = 'dependency' AND NOT EXISTS (
    SELECT FROM job_dependencies edge JOIN jobs dependency ON dependency.id = edge.depends_on
    WHERE edge.job_id = jobs.id AND dependency.status <> 'done')
RETURNING id

-- name: blockers
SELECT job_dependencies.job_id, array_agg(depends_on ORDER BY depends_on) AS blocked_by
FROM job_dependencies JOIN jobs ON jobs.id = depends_on AND jobs.status <> 'done'
WHERE job_id = ANY(%(job_ids)s) GROUP BY job_dependencies.job_id

-- fragment: usage_columns
(own).*, (everybody).at AS now, (everybody).active AS all_active,
    (everybody).callers AS all_callers, (everybody).paused AS paused

-- Functions of the database (sql/0005_admission.sql), so that they are planned once per connection.
-- name: queues_to_admit
SELECT {{usage_columns}}, ids, priorities, since
FROM lines_to_admit(%(callers)b::text[], %(done)b::text[], %(daily)b::text[], %(tiers)b::text[],
                    %(max_active)b::int[], %(remembered)b::int[], %(window)s, %(most)s)
    AS queue(own, everybody, ids, priorities, since)

-- name: usage
SELECT {{usage_columns}}, (SELECT count(*)::int FROM (
    SELECT FROM jobs WHERE status = 'pending' AND caller_id = %(caller_id)s LIMIT %(most)s
) AS pending) AS pending
FROM usage_of_caller(%(caller_id)s, %(tier)s, %(max_active)s, %(remembered)s, %(window)s) AS own,
    usage_of_everybody(%(window)s) AS everybody

-- Sorted as the indexes are, so that a planner without statistics reads them and no further than asked. A job is marked
-- as waiting for capacity when nothing else holds it back: its last change is that mark.
-- name: load
SELECT (SELECT count(*) FROM (
        SELECT FROM jobs WHERE status = 'pending' ORDER BY caller_id, created_at LIMIT %(most)s
    ) AS pending)::int + (usage_of_everybody(%(most)s)).active AS depth,
    (SELECT extract(epoch FROM now() - updated_at)::float8 FROM jobs
     WHERE status = 'pending' AND blocked_by = 'capacity' ORDER BY updated_at LIMIT 1) AS age_s

-- A locked job is being admitted, canceled or ended by another transaction: skipped, never waited for.
-- name: start_jobs
WITH chosen AS (
    SELECT id FROM jobs WHERE id = ANY(%(job_ids)s) AND {{in_queue}} ORDER BY id FOR UPDATE SKIP LOCKED
), job AS (
    UPDATE jobs SET status = coalesce(resume_stage, %(first)s), admitted_at = now(),
        updated_at = now(), blocked_by = NULL, next_eligible_at = NULL
    FROM chosen WHERE jobs.id = chosen.id
    RETURNING jobs.id, jobs.status, jobs.attempt, jobs.job_type, jobs.payload_digest, jobs.request_id
), transition AS (
    SELECT id AS job_id, attempt, 'pending' AS from_status, status AS to_status, 'admitted' AS cause,
        NULL::jsonb AS detail, {{no_stage_work}}, %(spent)s::jsonb AS spent, job_type, payload_digest, request_id
    FROM job
), history AS (
    {{insert_history}}
)
UPDATE outbox SET claimed_until = now() + interval '{{claim_s}} seconds'
FROM job WHERE outbox.job_id = job.id AND outbox.attempt = job.attempt AND outbox.stage = job.status
    AND outbox.awaiting_admission
RETURNING outbox.id, outbox.job_id, outbox.attempt, outbox.stage, outbox.payload, outbox.tries,
    outbox.caller_id

-- A mark is renewed when its job starts, so that callers who wait for capacity take turns at being looked at.
-- name: mark_waiting_for_capacity
UPDATE jobs SET blocked_by = 'capacity', updated_at = now() WHERE id IN (
    SELECT id FROM jobs WHERE id = ANY(%(job_ids)s) AND {{in_queue}} AND blocked_by IS NULL
    FOR UPDATE SKIP LOCKED
)

-- name: clear_waiting_for_capacity
UPDATE jobs SET blocked_by = NULL WHERE id IN (
    SELECT id FROM jobs
    WHERE status = 'pending' AND blocked_by = 'capacity' AND caller_id = ANY(%(callers)s)
    FOR UPDATE SKIP LOCKED
)

-- One step through the index per caller, however long their queues are.
-- name: waiting_callers
WITH RECURSIVE caller AS (
    (SELECT caller_id FROM jobs WHERE {{in_queue}} ORDER BY caller_id LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.caller_id FROM jobs WHERE {{in_queue}} AND jobs.caller_id > caller.caller_id
            ORDER BY jobs.caller_id LIMIT 1)
    FROM caller WHERE caller.caller_id IS NOT NULL
)
SELECT caller_id FROM caller WHERE caller_id IS NOT NULL LIMIT 10000

-- The position of one job is a count.
-- name: position
SELECT asked.id, count(*)::int AS position, asked.tier FROM jobs AS asked JOIN jobs AS own
    ON own.caller_id = asked.caller_id AND (own.turn, own.id) <= (asked.turn, asked.id)
    AND own.status = 'pending' AND (own.blocked_by IS NULL OR own.blocked_by = 'capacity')
WHERE asked.caller_id = %(caller_id)s AND asked.id = ANY(%(job_ids)s) AND asked.status = 'pending'
    AND (asked.blocked_by IS NULL OR asked.blocked_by = 'capacity')
GROUP BY asked.id, asked.tier

-- Those of several jobs are one walk along the queue.
-- name: positions
SELECT id, position::int, tier FROM (
    SELECT id, tier, row_number() OVER (ORDER BY turn, id) AS position FROM jobs
    WHERE {{in_queue}} AND caller_id = %(caller_id)s
) AS queue WHERE id = ANY(%(job_ids)s)

-- Jobs that were done last, by an index that is there anyway.
-- name: pace
WITH last AS MATERIALIZED (
    SELECT ended_at, admitted_at, extract(epoch FROM ended_at - admitted_at)::float8 AS took
    FROM jobs WHERE status = 'done' ORDER BY updated_at DESC LIMIT %(last)s
)
SELECT (SELECT percentile_cont(0.75) WITHIN GROUP (ORDER BY took) FROM last) AS duration_s, coalesce(
    sum(extract(epoch FROM least(a.ended_at, b.ended_at) - greatest(a.admitted_at, b.admitted_at)))::float8
        / greatest((SELECT sum(took) FROM last), 0.01), 1) AS abreast
FROM last a JOIN last b ON a.ended_at > b.admitted_at AND b.ended_at > a.admitted_at

-- Inserted or locked in the order of their names.
-- name: lock_sites
INSERT INTO sites AS known (site, full_at, last_at)
SELECT name, now(), now() FROM unnest(%(sites)b::text[]) AS new(name)
ON CONFLICT (site) DO UPDATE SET full_at = known.full_at
RETURNING site, now() AS now, full_at, last_at, due_at, last_caller

-- name: keep_sites
UPDATE sites SET full_at = kept.full_at, last_at = kept.last_at, due_at = kept.due_at, last_caller = kept.last_caller
FROM unnest(%(sites)b::text[], %(full_at)s::timestamptz[], %(last_at)s::timestamptz[],
            %(due_at)s::timestamptz[], %(last_callers)b::text[]) AS kept(site, full_at, last_at, due_at, last_caller)
WHERE sites.site = kept.site

-- name: due_sites
SELECT site, now() AS now, full_at, last_at, due_at, last_caller FROM sites
WHERE due_at <= now() ORDER BY due_at LIMIT %(most)s FOR UPDATE SKIP LOCKED

-- The first job of each caller in turn, then the second ones. A locked job is being canceled or ended by another
-- transaction: it is skipped.
-- name: release_jobs
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest(%(sites)b::text[], %(counts)b::int[], %(last_callers)b::text[]) AS w(site, count, last_caller)
    CROSS JOIN LATERAL callers_in_turn(site, last_caller, count)
), chosen AS MATERIALIZED (
    SELECT wanted.site, own.* FROM wanted CROSS JOIN LATERAL (
        SELECT job.id, one.caller_id, job.nth, one.place
        FROM unnest(wanted.callers) WITH ORDINALITY AS one(caller_id, place)
        CROSS JOIN LATERAL (
            SELECT id, row_number() OVER (ORDER BY turn, id) AS nth FROM jobs
            WHERE jobs.site = wanted.site AND jobs.caller_id = one.caller_id
                AND status = 'pending' AND blocked_by = 'domain'
            ORDER BY turn, id LIMIT wanted.count
        ) AS job
        ORDER BY job.nth, one.place LIMIT wanted.count
    ) AS own
), locked AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE id IN (SELECT id FROM chosen) AND status = 'pending' AND blocked_by = 'domain' FOR UPDATE SKIP LOCKED
), freed AS (
    UPDATE jobs SET blocked_by = NULL, next_eligible_at = NULL, updated_at = now()
    FROM locked WHERE jobs.id = locked.id RETURNING jobs.id
)
SELECT wanted.site, wanted.seen, EXISTS (
        SELECT FROM jobs WHERE jobs.site = wanted.site AND status = 'pending' AND blocked_by = 'domain'
            AND id NOT IN (SELECT id FROM freed)
    ) AS more, ARRAY(
        SELECT caller_id FROM chosen JOIN freed USING (id) WHERE chosen.site = wanted.site ORDER BY nth, place
    ) AS callers
FROM wanted

-- name: fetches
SELECT id AS job_id, canonical_url AS url, priority FROM jobs
WHERE id = ANY(%(job_ids)s) AND {{in_queue}} AND coalesce(resume_stage, %(first)s) = %(first)s AND replay_of IS NULL

-- name: hold_back
UPDATE jobs SET blocked_by = 'domain', site = held.site, next_eligible_at = held.eligible_at
FROM unnest(%(job_ids)b::text[], %(sites)b::text[], %(eligible_at)s::timestamptz[]) AS held(id, site, eligible_at)
WHERE jobs.id = held.id AND {{in_queue}}

-- A site that another transaction has locked is left out: what waits for it is reported again.
-- name: defer_sites
UPDATE sites SET full_at = greatest(full_at, now() + make_interval(secs => wait.seconds)),
    due_at = greatest(due_at, now() + make_interval(secs => wait.seconds)),
    failing_until = CASE WHEN wait.failing THEN now() + make_interval(secs => wait.seconds) ELSE failing_until END
FROM unnest(%(sites)b::text[], %(seconds)s::float8[], %(failing)s::boolean[]) AS wait(site, seconds, failing)
WHERE sites.site = wait.site AND sites.site IN (
    SELECT site FROM sites WHERE site = ANY(%(sites)b) ORDER BY site FOR UPDATE SKIP LOCKED)

-- None leaves before its site lets the next one go.
-- name: held_back
SELECT id, jobs.site, greatest(jobs.next_eligible_at, sites.due_at) AS eligible_at, coalesce(failing_until > now(), false) AS failing
FROM jobs LEFT JOIN sites ON sites.site = jobs.site
WHERE id = ANY(%(job_ids)s) AND status = 'pending' AND blocked_by = 'domain'

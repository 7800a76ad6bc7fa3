-- Statements of the job store, by act.

-- ---------- Fragments that several statements include ----------

-- Every transition is written by this one statement: what includes it has a CTE `transition` of these columns.
-- A trigger computes the hash chain (job_history_chain), so the order of rows is the order of the chain.
-- fragment: insert_history
INSERT INTO job_history (job_id, attempt, from_status, to_status, cause, detail, tries, worker, elapsed_ms,
                         spent, job_type, payload_digest, request_id)
SELECT job_id, attempt, from_status, to_status, cause, detail, tries, worker, elapsed_ms, spent, job_type,
    payload_digest, request_id
FROM transition

-- Of a transition that no stage's result caused.
-- fragment: no_stage_work
NULL::int AS tries, NULL::text AS worker, NULL::int AS elapsed_ms

-- Of one that costs nothing worth a line on its job's receipt.
-- fragment: no_work
{{no_stage_work}}, NULL::jsonb AS spent

-- ---------- Submission ----------

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
-- unchanged last; and whether that version is what today's chunker and model (the recipe) make of it, despite the same
-- doubts (accept), is not empty since it was a duplicate, and its links are known where they are wanted, and not deleted
-- (Retention.links) before the job ends. What the release before published has no digest: it is processed again.
-- Nothing is inserted for an alias: link_callers (sql/0021_callers.sql) moved what it had.
-- name: insert_jobs
WITH new AS (
    SELECT * FROM unnest(%(job_ids)s::text[], %(urls)s::text[], %(canonical)s::text[],
                         %(documents)s::text[], %(outbox_ids)s::text[], %(payloads)b::text[],
                         %(priorities)s::int[], %(forced)s::boolean[], %(digests)s::text[],
                         %(expected)s::timestamptz[], %(given)s::jsonb[], %(sites)s::text[],
                         %(eligible)s::timestamptz[])
        AS t(job_id, url, canonical_url, document_id, outbox_id, payload, priority, forced, payload_digest,
             expected_by, given, site, eligible_at)
    WHERE NOT EXISTS (SELECT FROM callers WHERE caller_id = %(caller_id)s AND root <> caller_id)
), before AS (
    SELECT one.document_id, version.*
    FROM (SELECT DISTINCT document_id FROM new) AS one
    CROSS JOIN LATERAL (
        SELECT published.raw_ref, jsonb_build_object(
                'job_id', published.id, 'title', published.title, 'chunk_count', published.chunk_count,
                'facts', coalesce(published.determinism, '{}')) AS previous,
            coalesce(documents.content_sha256 = published.determinism->>'content_sha256' AND documents.chunk_count > 0
                     AND published.determinism @> %(recipe)s::jsonb, false)
                AND published.determinism->'accept' IS NOT DISTINCT FROM to_jsonb(%(accept)s::text[])
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
                      accept, kind, site, next_eligible_at, blocked_by)
    SELECT new.job_id, 'pending', %(caller_id)s, url, %(corpus_name)s, %(batch_id)s, %(corpus_key)s,
           new.document_id, canonical_url, %(tier)s, %(job_type)s, priority, forced, payload_digest,
           %(replay_of)s, expected_by, %(request_id)s, %(budget)s,
           %(caller_type)s, %(submitted_by)s, given, before.previous, %(mark_stale)s,
           %(accept)s::text[], %(kind)s, site, eligible_at, CASE WHEN eligible_at IS NOT NULL THEN 'domain' END
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
SELECT id FROM job

-- name: root_of
SELECT root_of(%(caller_id)s) AS root

-- name: add_alias
INSERT INTO callers (caller_id, root, linked_at) VALUES (%(alias)s, %(root)s, now()) ON CONFLICT DO NOTHING

-- The job in flight for each document; or the job itself, when a lost answer made the work run twice.
-- name: jobs_in_flight
SELECT document_id, id, status, CASE WHEN expected_by > now() THEN expected_by END AS expected_by, caller_id, raw_ref,
    accept
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
FROM unnest(%(job_ids)s::text[]) AS a(job_id), unnest(%(depends_on)s::text[]) AS b(depends_on)
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
    SELECT edge.job_id FROM unnest(%(job_ids)s::text[]) AS ended(id) CROSS JOIN LATERAL (
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

-- ---------- Admission ----------

-- fragment: in_queue
status = 'pending' AND (blocked_by IS NULL OR blocked_by = 'capacity')

-- A message waits for its job's admission. The previous release knows that as claimed_until = 'infinity', and
-- the column `awaiting_admission` is derived from it as long as that release may run beside this one.
-- fragment: until_admission
'infinity'

-- fragment: usage_columns
(own).caller_id, (own).tier, (own).active, (own).in_hour, (own).in_minute, (own).hour_since, (own).minute_since,
    (own).newest, (own).chunks_today, (everybody).at AS now, (everybody).active AS all_active,
    (everybody).callers AS all_callers, (everybody).paused AS paused

-- Functions of the database (sql/0005_admission.sql), so that they are planned once per connection.
-- name: queues_to_admit
SELECT {{usage_columns}}, ids, priorities, since
FROM lines_to_admit(%(callers)s::text[], %(done)s::text[], %(daily)s::text[], %(tiers)s::text[],
                    %(max_active)s::int[], %(remembered)s::int[], %(window)s, %(most)s)
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
RETURNING outbox.id, outbox.job_id, outbox.attempt, outbox.stage, outbox.kind, outbox.payload, outbox.tries,
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

-- Inserted or locked in the order of their names.
-- name: lock_sites
INSERT INTO sites AS known (site, full_at, last_at)
SELECT name, now(), now() FROM unnest(%(sites)s::text[]) AS new(name)
ON CONFLICT (site) DO UPDATE SET full_at = known.full_at
RETURNING site, now() AS now, full_at, last_at, due_at, last_caller

-- name: keep_sites
UPDATE sites SET full_at = kept.full_at, last_at = kept.last_at, due_at = kept.due_at, last_caller = kept.last_caller
FROM unnest(%(sites)s::text[], %(full_at)s::timestamptz[], %(last_at)s::timestamptz[],
            %(due_at)s::timestamptz[], %(last_callers)s::text[]) AS kept(site, full_at, last_at, due_at, last_caller)
WHERE sites.site = kept.site

-- name: due_sites
SELECT site, now() AS now, full_at, last_at, due_at, last_caller FROM sites
WHERE due_at <= now() ORDER BY due_at LIMIT %(most)s FOR UPDATE SKIP LOCKED

-- The first job of each caller in turn, then the second ones. A locked job is being canceled or ended by another
-- transaction: it is skipped.
-- name: release_jobs
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest(%(sites)s::text[], %(counts)s::int[], %(last_callers)s::text[]) AS w(site, count, last_caller)
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
FROM unnest(%(job_ids)s::text[], %(sites)s::text[], %(eligible_at)s::timestamptz[]) AS held(id, site, eligible_at)
WHERE jobs.id = held.id AND {{in_queue}}

-- A site that another transaction has locked is left out: what waits for it is reported again.
-- name: defer_sites
UPDATE sites SET full_at = greatest(full_at, now() + make_interval(secs => wait.seconds)),
    due_at = greatest(due_at, now() + make_interval(secs => wait.seconds)),
    failing_until = CASE WHEN wait.failing THEN now() + make_interval(secs => wait.seconds) ELSE failing_until END
FROM unnest(%(sites)s::text[], %(seconds)s::float8[], %(failing)s::boolean[]) AS wait(site, seconds, failing)
WHERE sites.site = wait.site AND sites.site IN (
    SELECT site FROM sites WHERE site = ANY(%(sites)s) ORDER BY site FOR UPDATE SKIP LOCKED)

-- None leaves before its site lets the next one go.
-- name: held_back
SELECT id, jobs.site, greatest(jobs.next_eligible_at, sites.due_at) AS eligible_at, coalesce(failing_until > now(), false) AS failing
FROM jobs LEFT JOIN sites ON sites.site = jobs.site
WHERE id = ANY(%(job_ids)s) AND status = 'pending' AND blocked_by = 'domain'

-- name: blockers
SELECT job_dependencies.job_id, array_agg(depends_on ORDER BY depends_on) AS blocked_by
FROM job_dependencies JOIN jobs ON jobs.id = depends_on AND jobs.status <> 'done'
WHERE job_id = ANY(%(job_ids)s) GROUP BY job_dependencies.job_id

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

-- ---------- Results ----------

-- fragment: state_columns
id, status, attempt, caller_id, corpus_name, corpus_key, document_id, canonical_url, url, title,
    generation, has_dependents, budget, previous, mark_stale, accept, batch_id, kind, determinism->>'content_sha256' AS content_sha256

-- name: state
SELECT {{state_columns}}, 0 AS next_generation FROM jobs WHERE id = %(job_id)s

-- In the order of ids, so that two batches that share jobs wait for each other and never deadlock.
-- name: lock_jobs
SELECT {{state_columns}}, next_generation() AS next_generation,
    EXISTS (SELECT FROM duplicates AS d WHERE d.document_id = jobs.document_id)
        OR EXISTS (SELECT FROM duplicates AS d WHERE d.original = jobs.document_id) AS has_duplicates
FROM jobs WHERE id = ANY(%(job_ids)s) ORDER BY id FOR UPDATE

-- Of jobs with a budget in money. OFFSET 0 has the planner look up each job's history by its index.
-- name: spent
SELECT one.id AS job_id, sum(gb_s) AS gb_s, sum(invocations) AS invocations, sum(api_requests) AS api_requests,
    sum(sqs_units) AS sqs_units, sum(s3_reads) AS s3_reads, sum(s3_writes) AS s3_writes,
    sum(dynamodb_reads) AS dynamodb_reads, sum(dynamodb_writes) AS dynamodb_writes,
    sum(tokens_embedded)::bigint AS tokens_embedded
FROM unnest(%(job_ids)s::text[]) AS one(id) CROSS JOIN LATERAL (
    SELECT spent FROM job_history WHERE job_id = one.id AND spent IS NOT NULL OFFSET 0
) AS transition
CROSS JOIN LATERAL jsonb_to_record(spent) AS used(
    gb_s float8, invocations float8, api_requests float8, sqs_units float8, s3_reads float8, s3_writes float8,
    dynamodb_reads float8, dynamodb_writes float8, tokens_embedded bigint
)
GROUP BY one.id

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
                         %(raw_refs)s::jsonb[], %(facts)s::jsonb[], %(changes)s::text[], %(unchanged)s::text[],
                         %(duplicates)s::jsonb[])
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
    FROM unnest(%(h_jobs)s::text[], %(h_attempts)s::int[], %(h_from)s::text[], %(h_to)s::text[],
                %(h_causes)s::text[], %(h_details)s::jsonb[], %(h_tries)s::int[], %(h_workers)s::text[],
                %(h_elapsed)s::int[], %(h_spent)s::jsonb[]) WITH ORDINALITY
        AS h(job_id, attempt, from_status, to_status, cause, detail, tries, worker, elapsed_ms, spent, position)
    JOIN job ON job.id = h.job_id
    ORDER BY h.position
), history AS (
    {{insert_history}}
)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
SELECT o.id, o.job_id, job.caller_id, o.attempt, o.stage, 'queue', o.payload,
    now() + interval '{{claim_s}} seconds'
FROM unnest(%(o_ids)s::text[], %(o_jobs)s::text[], %(o_attempts)s::int[], %(o_stages)s::text[],
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
FROM unnest(%(job_ids)s::text[], %(tries)s::int[], %(next_retry_at)s::timestamptz[],
            %(retry_in_s)s::float8[], %(causes)s::text[], %(failures)s::jsonb[])
    AS note(job_id, tries, next_retry_at, retry_in_s, cause, failure)
WHERE jobs.id = note.job_id AND (jobs.next_retry_at IS NULL
    OR jobs.next_retry_at <= coalesce(now() + make_interval(secs => note.retry_in_s), note.next_retry_at))

-- name: kept_payloads
SELECT DISTINCT ON (stage) stage, payload FROM outbox WHERE job_id = %(job_id)s
ORDER BY stage, attempt DESC, created_at DESC

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
FROM unnest(%(documents)s::text[], %(corpus_keys)s::text[], %(urls)s::text[])
    AS one(document_id, corpus_key, url)
JOIN corpora ON corpora.corpus_key = one.corpus_key
ORDER BY one.document_id
ON CONFLICT (document_id) DO UPDATE SET min_generation = documents.min_generation
RETURNING document_id, published, job_id, EXISTS (
    SELECT FROM jobs WHERE jobs.document_id = documents.document_id AND forced AND status NOT IN ('done', 'failed')
) AS contested

-- name: keep_published
UPDATE documents SET job_id = kept.job_id, stale_since = NULL
FROM unnest(%(documents)s::text[], %(jobs)s::text[]) AS kept(document_id, job_id)
WHERE documents.document_id = kept.document_id

-- Unless another job has published it meanwhile.
-- name: mark_stale
UPDATE documents SET stale_since = coalesce(stale_since, now())
FROM unnest(%(documents)s::text[], %(jobs)s::text[]) AS gone(document_id, job_id)
WHERE documents.document_id = gone.document_id AND documents.job_id = gone.job_id AND published IS NOT NULL

-- name: raise_fences
UPDATE documents SET min_generation = greatest(min_generation, closed.generation + 1),
    fenced_at = CASE WHEN published IS NULL THEN now() END
FROM unnest(%(documents)s::text[], %(generations)s::bigint[]) AS closed(document_id, generation)
WHERE documents.document_id = closed.document_id

-- ---------- Job actions ----------

-- name: lock_job
SELECT {{state_columns}}, next_generation() AS next_generation,
    failed_stage, error, resume_stage, forced, ended_at, raw_ref, replay_of
FROM jobs WHERE id = %(job_id)s AND caller_id = %(caller_id)s FOR UPDATE

-- Jobs of a batch that have not ended.
-- name: lock_batch
SELECT {{state_columns}}, next_generation() AS next_generation,
    failed_stage, error, resume_stage, forced, ended_at, raw_ref, replay_of
FROM jobs WHERE batch_id = %(batch_id)s AND caller_id = %(caller_id)s AND status NOT IN ('done', 'failed')
ORDER BY id LIMIT %(most)s FOR UPDATE

-- A message that was not sent yet is parked; one that was sent finds the job failed.
-- name: cancel_jobs
WITH canceled AS (
    SELECT * FROM unnest(%(job_ids)s::text[], %(statuses)s::text[], %(errors)s::jsonb[]) AS t(job_id, status, error)
), job AS (
    UPDATE jobs SET status = 'failed', failed_stage = canceled.error->>'stage', error = canceled.error,
        updated_at = now(), ended_at = now(), tries = 0, next_retry_at = NULL, retry_cause = NULL, blocked_by = NULL,
        next_eligible_at = NULL, request_id = coalesce(%(request_id)s, request_id)
    FROM canceled WHERE jobs.id = canceled.job_id
    RETURNING jobs.id, jobs.attempt, canceled.status, canceled.error, job_type, payload_digest, request_id
), transition AS (
    SELECT id AS job_id, attempt, status AS from_status, 'failed' AS to_status, 'canceled' AS cause,
        error AS detail, {{no_work}}, job_type, payload_digest, request_id
    FROM job
), history AS (
    {{insert_history}}
)
UPDATE outbox SET parked_at = now(), last_error = 'canceled'
WHERE job_id = ANY(%(job_ids)s) AND sent_at IS NULL AND parked_at IS NULL

-- name: has_message
SELECT EXISTS (SELECT FROM outbox WHERE id = %(message_id)s AND job_id = %(job_id)s) AS found

-- name: published_since
SELECT EXISTS (
    SELECT FROM documents WHERE document_id = %(document_id)s AND published IS NOT NULL AND updated_at > %(at)s
) AS found

-- The message waits for the job's admission, like that of a new job. The start of the attempt before stays in the
-- quotas.
-- name: restart_job
WITH started AS (
    INSERT INTO earlier_starts (job_id, attempt, caller_id, started_at)
    SELECT id, attempt, caller_id, admitted_at FROM jobs
    WHERE id = %(job_id)s AND admitted_at > now() - interval '1 hour'
    ON CONFLICT DO NOTHING
), job AS (
    UPDATE jobs SET status = 'pending', attempt = %(attempt)s, resume_stage = %(stage)s, failed_stage = NULL,
        error = NULL, generation = coalesce(%(generation)s, generation), blocked_by = %(blocked_by)s,
        updated_at = now(), admitted_at = NULL, ended_at = NULL, next_eligible_at = NULL, tries = 0,
        expected_by = NULL, next_retry_at = NULL, retry_cause = NULL, page_change = nullif(page_change, 'removed'),
        duplicate_of = CASE WHEN %(stage)s <> %(first)s THEN duplicate_of END,
        request_id = coalesce(%(request_id)s, request_id)
    WHERE id = %(job_id)s RETURNING id, attempt, caller_id, job_type, payload_digest, request_id
), transition AS (
    SELECT id AS job_id, attempt, 'failed' AS from_status, 'pending' AS to_status, 'retried' AS cause,
        NULL::jsonb AS detail, {{no_work}}, job_type, payload_digest, request_id
    FROM job
), history AS (
    {{insert_history}}
), earlier AS (
    UPDATE outbox SET parked_at = now(), last_error = 'retried'
    WHERE job_id = %(job_id)s AND sent_at IS NULL AND parked_at IS NULL
)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
SELECT %(id)s, id, caller_id, attempt, %(stage)s, 'queue', %(payload)b::text, {{until_admission}} FROM job

-- ---------- Queries ----------

-- fragment: job_columns
id, status, url, corpus_name, failed_stage, error, created_at, updated_at, attempt, batch_id, document_id,
    chunk_count, title, tries, next_retry_at, priority, job_type, replay_of, expected_by, request_id, budget,
    page_change, unchanged, kind, retry_cause, last_error, determinism->'notes' AS notes, duplicate_of

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
  AND (%(corpus_name)s::text IS NULL OR jobs.corpus_name = %(corpus_name)s)
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

-- name: original
SELECT {{job_columns}}, caller_id, corpus_key, canonical_url, raw_ref, determinism, payload_digest, previous, accept
FROM jobs WHERE id = %(job_id)s AND caller_id = %(caller_id)s

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

-- ---------- The outbox ----------

-- name: claim
UPDATE outbox SET claimed_until = now() + interval '{{claim_s}} seconds'
WHERE id IN (
    SELECT id FROM outbox
    WHERE sent_at IS NULL AND parked_at IS NULL AND NOT awaiting_admission AND claimed_until <= now()
    ORDER BY claimed_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
RETURNING id, job_id, attempt, stage, kind, payload, tries, caller_id

-- name: mark_sent
UPDATE outbox SET sent_at = now(), last_error = NULL WHERE id = ANY(%(ids)s)

-- name: mark_failed
UPDATE outbox SET tries = tries + %(counted)s, last_error = %(error)s,
    claimed_until = now() + interval '10 seconds',
    parked_at = CASE WHEN tries + %(counted)s >= {{park_after}} THEN now() END
WHERE id = ANY(%(ids)s) AND sent_at IS NULL

-- name: record_dead_letter
-- A row of the same receive is this delivery's own: the statement is repeated when its answer was lost.
WITH kept AS (
    INSERT INTO dead_letters (queue, body, receive_count, reason, cause, job_id, stage, attempt, message_id,
                              body_ref, attributes, source_id)
    VALUES (%(queue)s, %(body)s, %(receive_count)s, %(reason)s, %(cause)s, %(job_id)s, %(stage)s, %(attempt)s,
            %(message_id)s, %(body_ref)s, %(attributes)s, %(source_id)s)
    ON CONFLICT (queue, source_id) DO NOTHING
    RETURNING id
)
SELECT EXISTS (SELECT FROM kept) OR EXISTS (
    SELECT FROM dead_letters
    WHERE queue = %(queue)s AND source_id = %(source_id)s AND receive_count = %(receive_count)s
)

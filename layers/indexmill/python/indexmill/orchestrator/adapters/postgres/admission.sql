-- fragment: in_queue
status = 'pending' AND blocked_by IS DISTINCT FROM 'dependency'

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

-- A locked job is being admitted, canceled or ended by another transaction: skipped, never waited for.
-- name: start_jobs
WITH chosen AS (
    SELECT id FROM jobs WHERE id = ANY(%(job_ids)s) AND {{in_queue}} ORDER BY id FOR UPDATE SKIP LOCKED
), job AS (
    UPDATE jobs SET status = coalesce(resume_stage, %(first)s), admitted_at = now(),
        updated_at = now(), blocked_by = NULL, next_eligible_at = NULL
    FROM chosen WHERE jobs.id = chosen.id
    RETURNING jobs.id, jobs.status, jobs.attempt, jobs.job_type, jobs.payload_digest
), transition AS (
    SELECT id AS job_id, attempt, 'pending' AS from_status, status AS to_status, 'admitted' AS cause,
        NULL::jsonb AS detail, {{no_stage_work}}, job_type, payload_digest
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
    AND own.status = 'pending' AND own.blocked_by IS DISTINCT FROM 'dependency'
WHERE asked.caller_id = %(caller_id)s AND asked.id = ANY(%(job_ids)s) AND asked.status = 'pending'
    AND asked.blocked_by IS DISTINCT FROM 'dependency'
GROUP BY asked.id, asked.tier

-- Those of several jobs are one walk along the queue.
-- name: positions
SELECT id, position::int, tier FROM (
    SELECT id, tier, row_number() OVER (ORDER BY turn, id) AS position FROM jobs
    WHERE {{in_queue}} AND caller_id = %(caller_id)s
) AS queue WHERE id = ANY(%(job_ids)s)

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

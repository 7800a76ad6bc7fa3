-- What a caller used counts, whichever attempt, endpoint or stage used it.

-- Starts of attempts before a job's current one, whose start is jobs.admitted_at: a quota counts both. Only a retry
-- writes here, and the sweeper deletes what is older than the longest window of a quota, an hour.
CREATE TABLE earlier_starts (
    job_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    caller_id TEXT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (job_id, attempt)
);
CREATE INDEX earlier_starts_caller ON earlier_starts (caller_id, started_at);
CREATE INDEX earlier_starts_age ON earlier_starts (started_at);

-- As in 0014, with the earlier starts. Both indexes are read from their newest entry on, and only as far as needed.
CREATE OR REPLACE FUNCTION usage_of_caller(caller TEXT, told_tier TEXT, max_active INTEGER, remembered INTEGER, places INTEGER)
RETURNS caller_usage LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE found caller_usage;
BEGIN
    found.caller_id := caller;
    found.tier := told_tier;
    SELECT count(*) INTO found.active FROM (
        SELECT FROM jobs WHERE caller_id = caller AND status NOT IN ('pending', 'done', 'failed')
        LIMIT coalesce(max_active, places)
    ) AS own;
    SELECT count(*), count(*) FILTER (WHERE at > now() - interval '1 minute'), min(at),
        min(at) FILTER (WHERE at > now() - interval '1 minute'), max(at)
    INTO found.in_hour, found.in_minute, found.hour_since, found.minute_since, found.newest
    FROM (
        SELECT at FROM (
            SELECT caller_id, admitted_at AS at FROM jobs
            UNION ALL SELECT caller_id, started_at FROM earlier_starts
        ) AS starts
        WHERE caller_id = caller AND at > now() - interval '1 hour' ORDER BY at DESC LIMIT remembered
    ) AS own;
    SELECT chunks INTO found.chunks_today FROM caller_chunks
    WHERE caller_id = caller AND day = (now() AT TIME ZONE 'UTC')::date;
    found.chunks_today := coalesce(found.chunks_today, 0);
    RETURN found;
END
$$;

-- Count `more` chunks of today for a caller, of whom a day may have `most`: one statement, so that requests at the same
-- time cannot exceed it together. NULL: they would be too many, and nothing is counted. A negative `more` takes back what
-- came to nothing. Embedding may call this and has no other right on the table.
CREATE FUNCTION count_caller_chunks(caller TEXT, more BIGINT, most BIGINT) RETURNS BIGINT
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    INSERT INTO caller_chunks AS today (caller_id, day, chunks)
    SELECT caller, (now() AT TIME ZONE 'UTC')::date, greatest(more, 0) WHERE more <= most
    ON CONFLICT (caller_id, day) DO UPDATE SET chunks = greatest(today.chunks + more, 0)
        WHERE more < 0 OR today.chunks + more <= most
    RETURNING chunks
$$;
REVOKE ALL ON FUNCTION count_caller_chunks FROM PUBLIC;
GRANT EXECUTE ON FUNCTION count_caller_chunks TO indexmill_embedding;

-- What the job may use at most, as contracts/budget.py writes it; NULL for no bound, as the release before leaves it.
ALTER TABLE jobs ADD COLUMN budget JSONB;

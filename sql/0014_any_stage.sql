-- A job is in flight when it is neither pending nor ended, whatever stages there are: a new stage changes only the two
-- constraints that name the stages (`python tools/stage_migration.py`).

CREATE INDEX jobs_in_stages ON jobs (caller_id) WHERE status NOT IN ('pending', 'done', 'failed');

CREATE OR REPLACE FUNCTION usage_of_everybody(places INTEGER) RETURNS usage_of_all LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE found usage_of_all;
BEGIN
    found.at := now();
    SELECT count(*), count(DISTINCT caller_id) INTO found.active, found.callers FROM (
        SELECT caller_id FROM jobs WHERE status NOT IN ('pending', 'done', 'failed')
        ORDER BY caller_id LIMIT places
    ) AS in_flight;
    found.paused := EXISTS (SELECT FROM pauses WHERE stage IN ('*', 'scraping'));
    RETURN found;
END
$$;

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
    SELECT count(*), count(*) FILTER (WHERE admitted_at > now() - interval '1 minute'), min(admitted_at),
        min(admitted_at) FILTER (WHERE admitted_at > now() - interval '1 minute'), max(admitted_at)
    INTO found.in_hour, found.in_minute, found.hour_since, found.minute_since, found.newest
    FROM (
        SELECT admitted_at FROM jobs WHERE caller_id = caller AND admitted_at > now() - interval '1 hour'
        ORDER BY admitted_at DESC LIMIT remembered
    ) AS own;
    SELECT chunks INTO found.chunks_today FROM caller_chunks
    WHERE caller_id = caller AND day = (now() AT TIME ZONE 'UTC')::date;
    found.chunks_today := coalesce(found.chunks_today, 0);
    RETURN found;
END
$$;

DROP INDEX jobs_active;

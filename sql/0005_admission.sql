-- What admission looks at: a caller's pending jobs in their turn, who waits for a free place, chunks of the day. It
-- runs in every transaction that submits or ends jobs; as functions its statements are planned once per connection.
-- They decide nothing: what they return is decided about in orchestrator/admission.py.

-- Earlier is sooner. A point of priority is worth half a minute of waiting, for ever: nobody's own urgent jobs keep
-- an older one back for longer than 50 minutes.
ALTER TABLE jobs ADD COLUMN turn DOUBLE PRECISION NOT NULL GENERATED ALWAYS AS
    (extract(epoch FROM created_at - TIMESTAMPTZ '2000-01-01 00:00:00+00')::double precision - 30 * priority) STORED;

CREATE INDEX jobs_turn ON jobs (caller_id, turn, id)
    WHERE status = 'pending' AND blocked_by IS DISTINCT FROM 'dependency';
-- One or few jobs of each caller who could start but for the others: looked at whenever any job ends.
CREATE INDEX jobs_capacity ON jobs (updated_at) WHERE status = 'pending' AND blocked_by = 'capacity';

-- Chunks that jobs of a tier with a daily limit made, by the day in UTC.
CREATE TABLE caller_chunks (
    caller_id TEXT NOT NULL,
    day DATE NOT NULL,
    chunks BIGINT NOT NULL,
    PRIMARY KEY (caller_id, day)
);

CREATE TYPE caller_usage AS (
    caller_id TEXT,
    tier TEXT,
    active INTEGER,
    in_hour INTEGER,
    in_minute INTEGER,
    hour_since TIMESTAMPTZ,
    minute_since TIMESTAMPTZ,
    newest TIMESTAMPTZ,
    chunks_today BIGINT
);
CREATE TYPE usage_of_all AS (
    at TIMESTAMPTZ,
    active INTEGER,
    callers INTEGER,
    paused BOOLEAN
);

-- No count goes further than somebody asks: a quota that is reached is reached. Plans are kept while tables grow from
-- nothing, and must not be those for an empty table: hence the settings.
CREATE FUNCTION usage_of_everybody(places INTEGER) RETURNS usage_of_all LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE found usage_of_all;
BEGIN
    found.at := now();
    SELECT count(*), count(DISTINCT caller_id) INTO found.active, found.callers FROM (
        SELECT caller_id FROM jobs WHERE status IN ('scraping', 'chunking', 'embedding')
        ORDER BY caller_id LIMIT places
    ) AS at_work;
    found.paused := EXISTS (SELECT FROM pauses WHERE stage IN ('*', 'scraping'));
    RETURN found;
END
$$;

CREATE FUNCTION usage_of_caller(caller TEXT, told_tier TEXT, max_active INTEGER, remembered INTEGER, places INTEGER)
RETURNS caller_usage LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE found caller_usage;
BEGIN
    found.caller_id := caller;
    found.tier := told_tier;
    SELECT count(*) INTO found.active FROM (
        SELECT FROM jobs WHERE caller_id = caller AND status IN ('scraping', 'chunking', 'embedding')
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

-- Locks, then counts. Locks are held until the commit: whoever admits for a caller sees what the one before did. Our
-- own callers are waited for, in one order; others who wait for capacity, the longest waiting ones, are taken when
-- nobody is at it. After this no row of a job may be waited for, so that no two transactions block each other.
CREATE FUNCTION lines_to_admit(
    callers TEXT[], done TEXT[], daily TEXT[],
    tiers TEXT[], max_active INTEGER[], remembered INTEGER[], places INTEGER, most INTEGER
)
RETURNS TABLE (counted caller_usage, everybody usage_of_all, ids TEXT[], priorities INTEGER[], since TIMESTAMPTZ[]) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    lock_class CONSTANT INTEGER := 720411;
    others CONSTANT INTEGER := 32;
    looked_at TEXT[];
    one TEXT;
    own_tier TEXT;
    at INTEGER;
BEGIN
    FOR one IN SELECT DISTINCT unnest(callers) ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(lock_class, hashtext(one));
        looked_at := looked_at || one;
    END LOOP;
    IF cardinality(done) > 0 THEN
        INSERT INTO caller_chunks (caller_id, day, chunks)
        SELECT caller_id, (now() AT TIME ZONE 'UTC')::date, sum(chunk_count) FROM jobs
        WHERE id = ANY(done) AND tier = ANY(daily) AND chunk_count > 0
        GROUP BY caller_id ORDER BY caller_id
        ON CONFLICT (caller_id, day) DO UPDATE SET chunks = caller_chunks.chunks + excluded.chunks;
    END IF;
    FOR one IN SELECT DISTINCT caller_id FROM (
        SELECT caller_id FROM jobs WHERE status = 'pending' AND blocked_by = 'capacity'
        ORDER BY updated_at LIMIT others
    ) AS waiting LOOP
        IF one <> ALL(callers) AND pg_try_advisory_xact_lock(lock_class, hashtext(one)) THEN
            looked_at := looked_at || one;
        END IF;
    END LOOP;
    FOREACH one IN ARRAY looked_at LOOP
        -- A caller has the tier that the last one in its line came with.
        SELECT tier INTO own_tier FROM jobs
        WHERE caller_id = one AND status = 'pending' AND blocked_by IS DISTINCT FROM 'dependency'
        ORDER BY turn DESC, id DESC LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        IF everybody IS NULL THEN
            everybody := usage_of_everybody(places);
        END IF;
        at := coalesce(array_position(tiers, own_tier), 1);
        counted := usage_of_caller(one, own_tier, max_active[at], remembered[at], places);
        SELECT array_agg(id ORDER BY turn, id), array_agg(priority::integer ORDER BY turn, id),
            array_agg(created_at ORDER BY turn, id)
        INTO ids, priorities, since
        FROM (
            SELECT id, priority, created_at, turn FROM jobs
            WHERE caller_id = one AND status = 'pending' AND blocked_by IS DISTINCT FROM 'dependency'
            ORDER BY turn, id LIMIT greatest(0, least(max_active[at] - counted.active, most))
        ) AS own;
        RETURN NEXT;
    END LOOP;
END
$$;

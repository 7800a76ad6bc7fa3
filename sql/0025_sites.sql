-- Jobs whose site gets no further request for a while stay pending, outside the queue of their caller. What a site's jobs
-- take of its rate is decided in orchestrator/admission/turns.py; this keeps it.

-- A site is a host, with its port when that is neither 80 nor 443. A row is 100 bytes and stays.
CREATE TABLE sites (
    site TEXT PRIMARY KEY,
    -- When its bucket of starts is full, if nothing else starts.
    full_at TIMESTAMPTZ NOT NULL,
    -- Estimated start of the last job that was held back.
    last_at TIMESTAMPTZ NOT NULL,
    -- When the next of its jobs may leave; NULL when none is held back.
    due_at TIMESTAMPTZ
);
CREATE INDEX sites_due ON sites (due_at) WHERE due_at IS NOT NULL;

-- Of a job that is or was held back.
ALTER TABLE jobs ADD COLUMN site TEXT;
CREATE INDEX jobs_held_back ON jobs (site, turn, id) WHERE status = 'pending' AND blocked_by = 'domain';

-- A caller's queue, without what its dependencies or sites hold back. The release before reads it by functions and by
-- statements whose condition also has what sites hold back; those go without an index while it still runs.
CREATE INDEX jobs_queue ON jobs (caller_id, turn, id)
    WHERE status = 'pending' AND (blocked_by IS NULL OR blocked_by = 'capacity');

-- As in 0005, with that queue. Locks are held until the commit: who admits for a caller sees what the one before did. Our
-- own callers are waited for, in one order; others who wait for capacity, the longest waiting ones, only when their lock
-- is free. After this no row of a job may be waited for, so that no two transactions block each other.
CREATE OR REPLACE FUNCTION lines_to_admit(
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
        WHERE caller_id = one AND status = 'pending' AND (blocked_by IS NULL OR blocked_by = 'capacity')
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
            WHERE caller_id = one AND status = 'pending' AND (blocked_by IS NULL OR blocked_by = 'capacity')
            ORDER BY turn, id LIMIT greatest(0, least(max_active[at] - counted.active, most))
        ) AS own;
        RETURN NEXT;
    END LOOP;
END
$$;

DROP INDEX jobs_turn;

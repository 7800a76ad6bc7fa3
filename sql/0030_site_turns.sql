-- Callers take turns at a site whose jobs are held back; see orchestrator/admission/turns.py.

-- The caller whose held-back job left last, or who was looked at last when none could.
ALTER TABLE sites ADD COLUMN last_caller TEXT NOT NULL DEFAULT '';

-- Of each caller, the jobs that a site holds back, and those that it let go and that have not started.
CREATE INDEX jobs_of_site ON jobs (site, caller_id, turn, id) WHERE status = 'pending' AND site IS NOT NULL;
DROP INDEX jobs_held_back;

-- Callers with jobs that the site holds back, at most `most` of them, beginning with the one after `after`, in a circle.
-- One whose earlier jobs of the site still wait, because of its quota or a pause, is left out: it could not start more.
-- `seen` is the last one that was looked at: with many who are left out, the next look goes on there.
CREATE FUNCTION callers_in_turn(of_site TEXT, after TEXT, most INTEGER, OUT callers TEXT[], OUT seen TEXT) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    tries CONSTANT INTEGER := most + 50;
    first RECORD;
    last TEXT := after;
    again BOOLEAN := false;
BEGIN
    callers := '{}';
    seen := after;
    FOR try IN 1..tries LOOP
        SELECT caller_id, turn, id INTO first FROM jobs
        WHERE site = of_site AND status = 'pending' AND blocked_by = 'domain' AND caller_id > last
        ORDER BY caller_id, turn, id LIMIT 1;
        IF NOT FOUND THEN
            EXIT WHEN again;
            again := true;
            last := '';
            CONTINUE;
        END IF;
        last := first.caller_id;
        EXIT WHEN again AND last > after;
        seen := last;
        IF NOT EXISTS (
            SELECT FROM jobs WHERE site = of_site AND caller_id = last AND status = 'pending'
                AND (blocked_by IS NULL OR blocked_by = 'capacity') AND (turn, id) < (first.turn, first.id)
        ) THEN
            callers := callers || last;
            EXIT WHEN cardinality(callers) >= most;
        END IF;
    END LOOP;
END
$$;

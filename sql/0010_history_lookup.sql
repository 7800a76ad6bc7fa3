-- The row before a new one is looked for by its job. Written without the sum, `ORDER BY seq DESC LIMIT 1` also fits a
-- walk backwards through the whole history, and a planner without statistics (a database that was just filled, restored
-- or upgraded) takes that: each new job then costs a look at every row that there is.

CREATE OR REPLACE FUNCTION job_history_chain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT hash INTO NEW.prev_hash FROM job_history WHERE job_id = NEW.job_id ORDER BY seq + 0 DESC LIMIT 1;
    NEW.prev_hash := coalesce(NEW.prev_hash, '');
    NEW.hash := job_history_hash(NEW);
    RETURN NEW;
END
$$;

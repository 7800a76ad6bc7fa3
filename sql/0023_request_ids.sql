-- X-Request-Id of the request that a job's current run goes back to: its submit, replay or retry, or its cancel. NULL for
-- what the release before wrote. Like `spent`, the hash of a row of the history does not cover it: that release checks
-- the chain too.
ALTER TABLE jobs ADD COLUMN request_id TEXT;
ALTER TABLE job_history ADD COLUMN request_id TEXT;

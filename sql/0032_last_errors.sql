-- Why a job waits for its next try, for people.

-- {code, message, stage, at} of the last try that failed, or of the site that keeps it waiting; counts while retry_cause is
-- set and the job is in that stage.
ALTER TABLE jobs ADD COLUMN last_error JSONB;

-- Until when a site that failed several times is left alone, as a worker said last.
ALTER TABLE sites ADD COLUMN failing_until TIMESTAMPTZ;

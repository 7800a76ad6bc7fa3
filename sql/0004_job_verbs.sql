-- What cancel, retry, replay and dependencies need of a job.

ALTER TABLE jobs
    -- Where a retried job goes on when it is admitted; null means at the first stage.
    ADD COLUMN resume_stage TEXT,
    -- Whether others wait for this job: ending it looks for them only then.
    ADD COLUMN has_dependents BOOLEAN NOT NULL DEFAULT false;

-- What a job found out about its page. `previous` is the document's published version when the job was submitted: the job
-- that published it, its title, number of chunks and facts. NULL for a document that was not published, as for jobs of
-- the release before.
ALTER TABLE jobs
    ADD COLUMN previous JSONB,
    ADD COLUMN page_change TEXT CHECK (page_change IN ('new', 'same', 'changed', 'removed')),
    ADD COLUMN unchanged TEXT CHECK (unchanged IN ('not_modified', 'same_content', 'max_age'));

-- Forced jobs are few, and the only ones beside the one job in flight for a document.
CREATE INDEX jobs_forced_in_flight ON jobs (document_id) WHERE forced AND status NOT IN ('done', 'failed');

-- Pages that name another URL of their corpus as theirs, by their canonical URL or by where they redirect to. Each row is a page
-- and one document that it may be a duplicate of. `holds`: its last job found it to be one, and it publishes nothing.
CREATE TABLE duplicates (
    document_id TEXT NOT NULL,
    original TEXT NOT NULL,
    -- Of the page's text.
    text_sha256 TEXT NOT NULL,
    holds BOOLEAN NOT NULL,
    -- The page's last job.
    job_id TEXT NOT NULL,
    -- When a job of the sweeper's was last submitted for it, and from when on the next one is.
    read_at TIMESTAMPTZ,
    due_at TIMESTAMPTZ,
    PRIMARY KEY (document_id, original)
);
CREATE INDEX duplicates_original ON duplicates (original);
CREATE INDEX duplicates_due ON duplicates (due_at) WHERE due_at IS NOT NULL;

-- Of a job that was done as a duplicate: {document_id, url} of the document that is published.
ALTER TABLE jobs ADD COLUMN duplicate_of JSONB;

-- Documents get other ids when their caller becomes an alias (link_callers): nothing else writes that column.
CREATE FUNCTION move_duplicates() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WITH own AS (DELETE FROM duplicates WHERE document_id = OLD.document_id RETURNING *)
    INSERT INTO duplicates
    SELECT NEW.document_id, original, text_sha256, holds, job_id, read_at, due_at FROM own ON CONFLICT DO NOTHING;
    WITH own AS (DELETE FROM duplicates WHERE original = OLD.document_id RETURNING *)
    INSERT INTO duplicates
    SELECT document_id, NEW.document_id, text_sha256, holds, job_id, read_at, due_at FROM own ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER move_duplicates AFTER UPDATE OF document_id ON jobs
    FOR EACH ROW WHEN (OLD.document_id IS DISTINCT FROM NEW.document_id) EXECUTE FUNCTION move_duplicates();

-- Deletion: a job that takes away all there is of documents, and leaves a fence that outlives their rows.

-- A deletion, by its job. `what` is what was asked for. Generations up to `generation` are those of before.
CREATE TABLE deletions (
    job_id TEXT PRIMARY KEY,
    caller_id TEXT NOT NULL,
    what JSONB NOT NULL,
    generation BIGINT NOT NULL,
    requested_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    -- Rows by kind, counted before they went and after, summed over the documents so far.
    removed JSONB NOT NULL DEFAULT '{}',
    -- References of this caller to objects that other callers may share, by prefix.
    referred JSONB NOT NULL DEFAULT '{}',
    -- Objects and items of this caller alone, which the sweeper deletes: keys of the bucket, `message:` and `job:` ids.
    objects TEXT[] NOT NULL DEFAULT '{}',
    -- When the last row was gone, and when the report was signed.
    erased_at TIMESTAMPTZ,
    reported_at TIMESTAMPTZ,
    report JSONB
);
CREATE INDEX deletions_to_report ON deletions (erased_at) WHERE erased_at IS NOT NULL AND reported_at IS NULL;

-- The fence: a document's id, or a corpus' key, of which no generation up to this one is published, and for which no crawl
-- that began before adds a page. Kept longer than a queue, a dead-letter queue, the dead letters' table and an outbox can
-- send a message again (Retention.tombstones). `erased`: its rows are gone.
CREATE TABLE tombstones (
    id TEXT PRIMARY KEY,
    generation BIGINT NOT NULL,
    job_id TEXT NOT NULL,
    erased BOOLEAN NOT NULL DEFAULT false,
    at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX tombstones_to_erase ON tombstones (job_id, id) WHERE NOT erased;
CREATE INDEX tombstones_at ON tombstones (at);

-- What Embedding removed for a deletion: counted by the transaction that removed it, once, however often it is asked to.
CREATE TABLE erasures (
    job_id TEXT NOT NULL,
    document_id TEXT NOT NULL,
    chunks INTEGER NOT NULL,
    memberships INTEGER NOT NULL,
    vectors INTEGER NOT NULL,
    postings INTEGER NOT NULL,
    PRIMARY KEY (job_id, document_id)
);

-- When what the job was of was deleted: of it, ids, times and codes are left.
ALTER TABLE jobs ADD COLUMN deleted_at TIMESTAMPTZ;
CREATE INDEX jobs_document ON jobs (corpus_key, document_id);

-- The one caller who ever published the document; '' for several. NULL for what was published before this column: the
-- document's jobs say it then.
ALTER TABLE documents ADD COLUMN owner TEXT;

-- As in 0037; the key of a corpus that was deleted is not used again while its tombstone is kept.
CREATE OR REPLACE FUNCTION key_of_corpus(of_owner TEXT, of_name TEXT) RETURNS TEXT LANGUAGE plpgsql STABLE
SET search_path = public, pg_temp AS $$
DECLARE
    key TEXT;
    nth INTEGER := 0;
BEGIN
    SELECT c.corpus_key INTO key FROM corpus_names AS n JOIN corpora AS c ON c.id = n.corpus
    WHERE n.owner = of_owner AND n.name = of_name;
    WHILE NOT FOUND LOOP
        key := corpus_key_of(of_owner, of_name, nth);
        PERFORM FROM (SELECT) AS one WHERE NOT EXISTS (SELECT FROM corpora WHERE corpus_key = key)
            AND NOT EXISTS (SELECT FROM tombstones WHERE id = key);
        nth := nth + 1;
    END LOOP;
    RETURN key;
END
$$;

GRANT DELETE ON corpus_totals TO indexmill_orchestrator;
GRANT SELECT ON tombstones TO indexmill_embedding;
GRANT SELECT, INSERT ON erasures TO indexmill_embedding;

-- The list of a corpus's documents is in the order of their URLs, bytewise: so a page of it, and those below one URL, are
-- a range of the first index; and so in the others, for the filters. No column of them changes when a document is
-- published, since its row has them from the start: the update stays within the table's page.
CREATE INDEX documents_url ON documents (corpus_id, url COLLATE "C", id);
CREATE INDEX documents_type ON documents (corpus_id, content_type, url COLLATE "C", id);
CREATE INDEX documents_stale ON documents (corpus_id, url COLLATE "C", id) WHERE stale_since IS NOT NULL;

-- The text that a version's chunks were cut from: what no chunk has of it (white space), its digest and its length in
-- characters, and where the pages of a PDF begin. They are those of the generation beside them: a worker of the release
-- before publishes without them, and leaves what an earlier version had.
ALTER TABLE documents
    ADD COLUMN text_generation BIGINT,
    ADD COLUMN text_rest TEXT,
    ADD COLUMN text_sha256 TEXT,
    ADD COLUMN text_length INTEGER,
    ADD COLUMN page_starts INTEGER[];

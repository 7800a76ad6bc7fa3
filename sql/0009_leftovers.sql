-- What failed jobs leave behind is thrown away some day: the letters of their messages, and fences of documents that
-- nobody published. And a pause is of something that can be paused.

CREATE INDEX dead_letters_received ON dead_letters USING brin (received_at)
    WITH (pages_per_range = 32, autosummarize = on);

-- When the document was closed to what its failed jobs might still publish; null once it is published. Publishing does
-- not touch it, so the index costs the way of a job that goes well nothing.
ALTER TABLE documents ADD COLUMN fenced_at TIMESTAMPTZ;
UPDATE documents SET fenced_at = now() WHERE published IS NULL;
CREATE INDEX documents_fenced ON documents (fenced_at) WHERE fenced_at IS NOT NULL;

-- Chunking is called directly, so there is no switch that would hold it back: a pause that holds nothing is refused.
DELETE FROM pauses WHERE stage NOT IN ('*', 'scraping', 'embedding');
ALTER TABLE pauses ADD CONSTRAINT only_scraping_embedding_or_all_can_be_paused
    CHECK (stage IN ('*', 'scraping', 'embedding'));

-- What search can be filtered by and says of a document: facts of its published version, and its caller's metadata.
-- Without values: what the release before published says nothing.

ALTER TABLE documents
    ADD COLUMN indexed_at TIMESTAMPTZ, ADD COLUMN fetched_at TIMESTAMPTZ, ADD COLUMN published_at TIMESTAMPTZ,
    ADD COLUMN content_type TEXT, ADD COLUMN language TEXT, ADD COLUMN metadata JSONB;

-- Null: the job leaves the document's metadata as it is.
ALTER TABLE jobs ADD COLUMN metadata JSONB;

-- A page that its site answers 404 or 410 for: what the job asked for (`mark_stale`), and since when its document is stale.
-- It is found by search all the same, with a mark, until it is published or found unchanged again.
ALTER TABLE jobs ADD COLUMN mark_stale BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE documents ADD COLUMN stale_since TIMESTAMPTZ;

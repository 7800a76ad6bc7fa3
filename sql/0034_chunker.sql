-- The chunker that cut a document's published version, for the explanation of a search result. Null: unknown.

ALTER TABLE documents ADD COLUMN chunker TEXT;

-- The search index: the catalogue of corpora and documents, chunks, their vectors and their words.
--
-- One transaction publishes a document's whole chunk set, so every committed chunk is searchable and no row needs
-- a "live" flag. The hot tables carry no foreign keys: each row of theirs is written and dropped under the lock of
-- its document's row.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE corpora (
    id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    corpus_key TEXT NOT NULL UNIQUE,
    caller_id TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX corpora_caller ON corpora (caller_id, name);

-- Vectors of different spaces are never compared. `indexed_rows` is how many vectors there were when the space's
-- approximate index was built last; 0 = none, search is exact.
CREATE TABLE spaces (
    id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL CHECK (dimension BETWEEN 1 AND 16000),
    indexed_rows BIGINT NOT NULL DEFAULT 0,
    UNIQUE (model, dimension)
);

-- `published` is the generation that search sees; a generation below `min_generation` can no longer be published.
CREATE TABLE documents (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    document_id TEXT NOT NULL UNIQUE,
    corpus_id INTEGER NOT NULL REFERENCES corpora ON DELETE CASCADE,
    url TEXT NOT NULL DEFAULT '',
    title TEXT,
    content_sha256 TEXT,
    published BIGINT,
    min_generation BIGINT NOT NULL DEFAULT 0,
    chunk_count INTEGER NOT NULL DEFAULT 0,
    job_id TEXT,
    model TEXT,
    dimension INTEGER,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
) WITH (fillfactor = 80);
CREATE INDEX documents_corpus ON documents (corpus_id, id);

-- Ids are handed out in blocks of 64: block b holds the chunks 64 b .. 64 b + 63.
CREATE SEQUENCE chunk_blocks AS INTEGER MAXVALUE 33554430;

-- Immutable. `words` and `terms` count the analyzed words and the distinct ones.
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY,
    corpus INTEGER NOT NULL,
    document BIGINT NOT NULL,
    tokens INTEGER NOT NULL,
    words INTEGER NOT NULL,
    terms INTEGER NOT NULL,
    analyzer_version SMALLINT NOT NULL,
    chunk_id BYTEA NOT NULL UNIQUE,
    language TEXT NOT NULL,
    context TEXT NOT NULL,
    text TEXT NOT NULL
);

-- Which chunks make up a generation of a document, and where they stand in its text (in characters).
CREATE TABLE memberships (
    document BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    chunk INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    start_at INTEGER NOT NULL,
    end_at INTEGER NOT NULL,
    PRIMARY KEY (document, generation, chunk)
);

-- Unit vectors, half precision: cosine similarity is their inner product. Narrow, since an exact search reads
-- every row of its corpus.
CREATE TABLE vectors (
    corpus INTEGER NOT NULL,
    space INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    embedding HALFVEC NOT NULL,
    PRIMARY KEY (corpus, space, chunk)
);
ALTER TABLE vectors ALTER COLUMN embedding SET STORAGE EXTERNAL;

-- The keyword index: search reads only the primary key's pages. `term` is a 31-bit hash of the stem, `tf` how
-- often it occurs in the chunk, `dl` how many words the chunk has.
CREATE TABLE postings (
    corpus INTEGER NOT NULL,
    term INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    tf SMALLINT NOT NULL,
    dl SMALLINT NOT NULL,
    PRIMARY KEY (corpus, term, chunk) INCLUDE (tf, dl)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_insert_threshold = 50000);

-- Chunks and words per corpus, exact when its stripes are added up: writers of one corpus use different rows.
CREATE TABLE corpus_totals (
    corpus INTEGER NOT NULL,
    stripe SMALLINT NOT NULL,
    chunks BIGINT NOT NULL,
    words BIGINT NOT NULL,
    first_chunk INTEGER NOT NULL,
    last_chunk INTEGER NOT NULL,
    PRIMARY KEY (corpus, stripe)
) WITH (fillfactor = 50);

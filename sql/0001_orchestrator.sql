-- The Orchestrator's tables. `jobs` is the product's published schema plus additive columns.

CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    status TEXT NOT NULL
        CHECK (status IN ('pending', 'scraping', 'chunking', 'embedding', 'done', 'failed')),
    caller_id TEXT NOT NULL,
    url TEXT NOT NULL,
    corpus_name TEXT,
    failed_stage TEXT,
    error JSONB,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    -- additive from here on
    attempt INTEGER NOT NULL DEFAULT 1,
    batch_id TEXT,
    corpus_key TEXT,
    document_id TEXT,
    canonical_url TEXT,
    title TEXT,
    chunk_count INTEGER,
    CONSTRAINT jobs_failed_says_why
        CHECK ((status = 'failed') = (failed_stage IS NOT NULL) AND (status = 'failed') = (error IS NOT NULL))
);
CREATE INDEX jobs_caller_status ON jobs (caller_id, status);
CREATE INDEX jobs_status_updated ON jobs (status, updated_at);
CREATE INDEX jobs_failed_stage ON jobs (failed_stage) WHERE status = 'failed';
CREATE INDEX jobs_caller_newest ON jobs (caller_id, created_at DESC, id DESC);

-- One row per transition, never changed. The unique key makes a transition happen once.
CREATE TABLE job_history (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    from_status TEXT,
    to_status TEXT NOT NULL,
    at TIMESTAMPTZ NOT NULL DEFAULT now(),
    cause TEXT,
    detail JSONB,
    UNIQUE (job_id, attempt, to_status)
);

-- A message is committed with the state change that caused it, sent afterwards, and kept for retries.
CREATE TABLE outbox (
    id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    stage TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('queue', 'call')),
    payload TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    claimed_until TIMESTAMPTZ NOT NULL DEFAULT now(),
    sent_at TIMESTAMPTZ,
    tries INTEGER NOT NULL DEFAULT 0,
    parked_at TIMESTAMPTZ,
    last_error TEXT
);
-- Kept for days only: compressing each payload would cost more than its disk.
ALTER TABLE outbox ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX outbox_unsent ON outbox (claimed_until) WHERE sent_at IS NULL AND parked_at IS NULL;
CREATE INDEX outbox_job ON outbox (job_id);

-- Each result counts once.
CREATE TABLE inbox (
    message_id TEXT PRIMARY KEY,
    received_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE dead_letters (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue TEXT NOT NULL,
    job_id TEXT,
    body TEXT NOT NULL,
    receive_count INTEGER NOT NULL,
    reason TEXT NOT NULL,
    received_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- Newer generations of a document win; gaps are harmless.
CREATE SEQUENCE generation_seq AS BIGINT CACHE 1;

-- A crawl is a batch that grows: each of its pages is a job, and the transaction that applies a page's result adds jobs for
-- the links that are new. `id` is the batch's id, and `plan` what its jobs share.
CREATE TABLE crawls (
    id TEXT PRIMARY KEY,
    caller_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('crawl', 'sitemap')),
    plan JSONB NOT NULL,
    max_pages INTEGER NOT NULL,
    pages INTEGER NOT NULL DEFAULT 1,
    -- Hosts whose pages belong to it; those of the first page and of where that redirects to.
    hosts TEXT[] NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    canceled_at TIMESTAMPTZ,
    -- Whether it may still have a job that has not ended. It is looked at when its caller starts the next one.
    open BOOLEAN NOT NULL DEFAULT true
);
CREATE INDEX crawls_open ON crawls (caller_id) WHERE open;

-- The pages of a crawl by digest of their URL, so that each has one job. Only written while the crawl's row is locked.
CREATE TABLE crawl_pages (
    crawl_id TEXT NOT NULL,
    page BYTEA NOT NULL,
    job_id TEXT NOT NULL,
    depth SMALLINT NOT NULL,
    PRIMARY KEY (crawl_id, page)
);

-- Links of a document's raw content, one on a line, for a crawl that finds the page unchanged.
CREATE TABLE page_links (
    document_id TEXT PRIMARY KEY,
    content_sha256 TEXT NOT NULL,
    links TEXT NOT NULL
);

-- What a job is in a crawl; NULL for one that belongs to none, as for all of the release before. The id of the crawl is the
-- batch's.
ALTER TABLE jobs ADD COLUMN kind TEXT CHECK (kind IN ('crawl', 'sitemap', 'page'));

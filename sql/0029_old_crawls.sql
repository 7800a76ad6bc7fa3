-- Which crawls may add jobs is read from the jobs: a retried one opens its crawl again. The column `open` stays until no
-- release that writes it can run beside this one.
DROP INDEX crawls_open;

-- Ended crawls are deleted, and links that no crawl used for long. Both are found by their age.
CREATE INDEX crawls_age ON crawls (created_at);
-- To the day: an unchanged page costs no write on the same one.
ALTER TABLE page_links ADD COLUMN used_at TIMESTAMPTZ NOT NULL DEFAULT now();
CREATE INDEX page_links_age ON page_links (used_at);

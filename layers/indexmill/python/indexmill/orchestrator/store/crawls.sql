-- Statements of crawls.

-- fragment: crawl_columns
id, caller_id, kind, plan, hosts, pages, canceled_at

-- name: add_crawl
WITH crawl AS (
    INSERT INTO crawls (id, caller_id, kind, plan, max_pages, hosts)
    VALUES (%(id)s, %(caller_id)s, %(kind)s, %(plan)s, %(max_pages)s, %(hosts)s)
    ON CONFLICT DO NOTHING
)
INSERT INTO crawl_pages (crawl_id, page, job_id, depth) VALUES (%(id)s, %(page)s, %(job_id)s, 0)
ON CONFLICT DO NOTHING

-- Crawls with a job that has not ended: by the caller's jobs that wait and those in flight, each with an index of its own.
-- name: pages_to_come
SELECT coalesce(sum(crawl.room), 0)::int AS pages FROM (
    SELECT batch_id FROM jobs WHERE caller_id = %(caller_id)s AND status = 'pending'
    UNION SELECT batch_id FROM jobs WHERE caller_id = %(caller_id)s AND status NOT IN ('pending', 'done', 'failed')
) AS at_work CROSS JOIN LATERAL (
    SELECT max_pages - pages AS room FROM crawls WHERE id = at_work.batch_id AND canceled_at IS NULL OFFSET 0
) AS crawl

-- name: lock_crawls
SELECT {{crawl_columns}} FROM crawls WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE

-- name: crawl
SELECT {{crawl_columns}} FROM crawls WHERE id = %(id)s AND root_of(caller_id) = %(caller_id)s

-- name: cancel_crawl
UPDATE crawls SET canceled_at = coalesce(canceled_at, now())
WHERE id = %(id)s AND root_of(caller_id) = %(caller_id)s RETURNING id

-- name: depths
SELECT page, depth FROM crawl_pages WHERE crawl_id = %(id)s AND page = ANY(%(pages)b::bytea[])

-- name: lessen_depths
WITH lesser AS (
    UPDATE crawl_pages SET depth = new.depth
    FROM unnest(%(pages)b::bytea[], %(depths)s::int[]) AS new(page, depth)
    WHERE crawl_id = %(id)s AND crawl_pages.page = new.page
    RETURNING job_id, crawl_pages.depth
)
SELECT jobs.document_id, lesser.depth FROM lesser JOIN jobs ON jobs.id = lesser.job_id
WHERE jobs.status NOT IN ('pending', %(first)s)

-- name: add_pages
WITH page AS (
    INSERT INTO crawl_pages (crawl_id, page, job_id, depth)
    SELECT %(id)s, * FROM unnest(%(pages)b::bytea[], %(jobs)s::text[], %(depths)s::int[])
    RETURNING crawl_id
)
UPDATE crawls SET pages = pages + (SELECT count(*) FROM page), hosts = %(hosts)s WHERE id = %(id)s

-- Marked as used, once a day; those that are locked are just being marked.
-- name: links_of
WITH used AS (
    UPDATE page_links SET used_at = now() WHERE document_id IN (
        SELECT document_id FROM page_links
        WHERE document_id = ANY(%(documents)s) AND used_at < now() - interval '1 day' FOR UPDATE SKIP LOCKED
    )
)
SELECT document_id, links FROM page_links WHERE document_id = ANY(%(documents)s)

-- name: keep_links
INSERT INTO page_links (document_id, content_sha256, links)
SELECT * FROM unnest(%(documents)s::text[], %(digests)s::text[], %(links)s::text[])
ON CONFLICT (document_id) DO UPDATE
    SET content_sha256 = excluded.content_sha256, links = excluded.links, used_at = now()
    WHERE (page_links.content_sha256, page_links.links) IS DISTINCT FROM (excluded.content_sha256, excluded.links)
        OR page_links.used_at < now() - interval '1 day'

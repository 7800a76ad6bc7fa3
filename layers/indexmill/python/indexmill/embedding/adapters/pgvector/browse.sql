-- Statements that read a corpus's documents without a question. Each is one snapshot: of a document that is published again
-- meanwhile it reads one version.

-- fragment: document_columns
d.document_id, d.url, d.title, d.chunk_count, d.content_sha256, d.published AS generation, d.model, d.dimension,
    d.stale_since IS NOT NULL AS stale, d.stale_since,
    CASE WHEN d.text_generation = d.published THEN d.text_length END AS text_length,
    d.indexed_at, d.fetched_at, d.published_at, d.content_type, d.language, d.metadata

-- fragment: listed
d.corpus_id = %(corpus)s AND (d.url COLLATE "C", d.id) > (%(after_url)s COLLATE "C", %(after_id)s)
    AND d.url COLLATE "C" < %(below)s AND d.published IS NOT NULL AND d.chunk_count > 0
    AND (NOT %(fresh)s OR d.stale_since IS NULL)

-- fragment: in_order
ORDER BY d.corpus_id, d.url COLLATE "C", d.id LIMIT %(limit)s

-- name: list_documents
SELECT d.id AS row_id, {{document_columns}} FROM documents AS d WHERE {{listed}} {{in_order}}

-- name: list_stale_documents
SELECT d.id AS row_id, {{document_columns}} FROM documents AS d
WHERE {{listed}} AND d.stale_since IS NOT NULL
    AND (%(content_type)s::text IS NULL OR d.content_type = %(content_type)s)
{{in_order}}

-- name: list_typed_documents
SELECT d.id AS row_id, {{document_columns}} FROM documents AS d
WHERE {{listed}} AND d.content_type = %(content_type)s
ORDER BY d.corpus_id, d.content_type, d.url COLLATE "C", d.id LIMIT %(limit)s

-- name: find_document
SELECT {{document_columns}} FROM documents AS d
WHERE d.document_id = %(document_id)s AND d.corpus_id = %(corpus)s AND d.published IS NOT NULL AND d.chunk_count > 0

-- A document without a chunk after `after` has one row, without a chunk.
-- name: document_chunks
SELECT d.published AS generation, encode(c.chunk_id, 'hex') AS chunk_id, m.ordinal, c.text, c.context, m.start_at AS start,
    m.end_at AS "end", c.tokens,
    CASE WHEN d.text_generation = d.published THEN nullif(width_bucket(m.start_at, d.page_starts), 0) END AS page
FROM documents AS d
LEFT JOIN LATERAL (
    SELECT chunk, ordinal, start_at, end_at FROM memberships
    WHERE document = d.id AND generation = d.published AND ordinal > %(after)s
    ORDER BY ordinal LIMIT %(limit)s
) AS m ON true
LEFT JOIN LATERAL (SELECT chunk_id, text, context, tokens FROM chunks WHERE id = m.chunk OFFSET 0) AS c ON true
WHERE d.document_id = %(document_id)s AND d.corpus_id = %(corpus)s AND d.published IS NOT NULL AND d.chunk_count > 0
ORDER BY m.ordinal

-- name: document_text
SELECT d.published AS generation, d.text_rest AS rest, d.text_sha256 AS sha256, d.text_length AS length,
    d.text_generation IS NOT DISTINCT FROM d.published AS is_kept, c.starts, c.ends, c.texts
FROM documents AS d
LEFT JOIN LATERAL (
    SELECT array_agg(m.start_at ORDER BY m.ordinal) AS starts, array_agg(m.end_at ORDER BY m.ordinal) AS ends,
        array_agg(one.text ORDER BY m.ordinal) AS texts
    FROM memberships AS m
    CROSS JOIN LATERAL (SELECT text FROM chunks WHERE id = m.chunk OFFSET 0) AS one
    WHERE m.document = d.id AND m.generation = d.published
) AS c ON d.text_generation = d.published
WHERE d.document_id = %(document_id)s AND d.corpus_id = %(corpus)s AND d.published IS NOT NULL AND d.chunk_count > 0

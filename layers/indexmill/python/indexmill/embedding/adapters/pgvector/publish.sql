-- name: claim_documents
INSERT INTO documents (document_id, corpus_id, url)
SELECT * FROM unnest(%(ids)s::text[], %(corpora)s::int4[], %(urls)s::text[])
    AS claimed (document_id, corpus_id, url)
ORDER BY document_id
ON CONFLICT (document_id) DO UPDATE SET updated_at = now()
RETURNING document_id, id, published, min_generation

-- name: take_row_blocks
SELECT nextval('chunk_blocks')::int4 AS block FROM generate_series(1, %(count)s)

-- The count is read back from the tables: a version is visible with every chunk and vector, or not at all.
-- name: make_visible
UPDATE documents AS d
SET published = v.generation, url = v.url, title = v.title, content_sha256 = v.content_sha256,
    job_id = v.job_id, chunk_count = v.chunks, model = v.model, dimension = v.dimension, updated_at = now()
FROM unnest(%(documents)s::int8[], %(generations)s::int8[], %(chunks)s::int4[], %(spaces)s::int4[],
            %(urls)s::text[], %(titles)s::text[], %(digests)s::text[], %(jobs)s::text[], %(models)s::text[],
            %(dimensions)s::int4[])
    AS v (id, generation, chunks, space, url, title, content_sha256, job_id, model, dimension)
WHERE d.id = v.id AND (d.published IS NULL OR d.published < v.generation) AND d.min_generation <= v.generation
    AND v.chunks = (
        SELECT count(*) FROM memberships AS m
        JOIN chunks AS c ON c.id = m.chunk
        JOIN vectors AS e ON e.corpus = c.corpus AND e.space = v.space AND e.chunk = c.id
        WHERE m.document = v.id AND m.generation = v.generation)

-- name: add_totals
INSERT INTO corpus_totals AS t (corpus, stripe, chunks, words, first_chunk, last_chunk)
SELECT added.corpus, pg_backend_pid() %% {{stripes}}, added.chunks, added.words, added.first_row,
    added.last_row
FROM unnest(%(corpora)s::int4[], %(chunks)s::int8[], %(words)s::int8[], %(first_rows)s::int4[],
            %(last_rows)s::int4[])
    AS added (corpus, chunks, words, first_row, last_row)
ORDER BY added.corpus
ON CONFLICT (corpus, stripe) DO UPDATE
SET chunks = t.chunks + excluded.chunks, words = t.words + excluded.words,
    first_chunk = least(t.first_chunk, excluded.first_chunk),
    last_chunk = greatest(t.last_chunk, excluded.last_chunk)

-- name: kept_chunks
SELECT c.document, c.id AS row_id, encode(c.chunk_id, 'hex') AS chunk_id,
    ARRAY(SELECT e.space FROM vectors AS e, spaces AS s
          WHERE e.corpus = c.corpus AND e.space = s.id AND e.chunk = c.id) AS spaces
FROM memberships AS m JOIN chunks AS c ON c.id = m.chunk
WHERE m.document = ANY(%(documents)s)

-- name: drop_memberships
DELETE FROM memberships AS m
USING unnest(%(documents)s::int8[], %(generations)s::int8[]) AS v (document, generation)
WHERE m.document = v.document AND m.generation <> v.generation

-- name: drop_vectors
DELETE FROM vectors AS e
USING unnest(%(corpora)s::int4[], %(spaces)s::int4[], %(rows)s::int4[]) AS v (corpus, space, chunk)
WHERE e.corpus = v.corpus AND e.space = v.space AND e.chunk = v.chunk

-- name: drop_chunks
DELETE FROM chunks WHERE id = ANY(%(rows)s)
RETURNING id AS row_id, corpus, words, terms, analyzer_version, language, context, text

-- name: drop_postings
DELETE FROM postings AS p
USING unnest(%(corpora)s::int4[], %(terms)s::int4[], %(rows)s::int4[]) AS v (corpus, term, chunk)
WHERE p.corpus = v.corpus AND p.term = v.term AND p.chunk = v.chunk

-- Reads the whole corpus: only for chunks whose terms can no longer be derived from their text.
-- name: drop_postings_by_scan
DELETE FROM postings WHERE corpus = ANY(%(corpora)s) AND chunk = ANY(%(rows)s)

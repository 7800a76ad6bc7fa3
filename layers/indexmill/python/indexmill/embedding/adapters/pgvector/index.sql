-- Statements of the vector index: corpora, spaces and generations; publishing; search.

-- name: add_corpora
INSERT INTO corpora (corpus_key, caller_id, name)
SELECT corpus_key, caller_id, name
FROM unnest(%(keys)s::text[], %(callers)s::text[], %(names)s::text[])
    AS added (corpus_key, caller_id, name)
WHERE NOT EXISTS (SELECT FROM corpora AS c WHERE c.corpus_key = added.corpus_key)
    AND NOT EXISTS (SELECT FROM tombstones WHERE id = added.corpus_key)
ORDER BY corpus_key
ON CONFLICT DO NOTHING

-- name: find_corpora
SELECT corpus_key, id FROM corpora WHERE corpus_key = ANY(%(keys)s)

-- name: add_space
INSERT INTO spaces (model, dimension) SELECT %(model)s, %(dimension)s
WHERE NOT EXISTS (SELECT FROM spaces WHERE model = %(model)s AND dimension = %(dimension)s)
ON CONFLICT DO NOTHING

-- name: find_space
SELECT id FROM spaces WHERE model = %(model)s AND dimension = %(dimension)s

-- name: next_generation
SELECT next_generation() AS generation

-- name: place_in_corpus
WITH made AS MATERIALIZED (SELECT make_corpus(%(owner)s, %(caller_id)s, %(name)s) AS key)
SELECT made.key, next_generation() AS generation, (
    SELECT coalesce(sum(t.chunks), 0)::int8 FROM corpora AS c JOIN corpus_totals AS t ON t.corpus = c.id
    WHERE c.corpus_key = made.key) AS chunks
FROM made

-- name: target_of_job
SELECT caller_id, corpus_name, corpus_key, document_id, url, status, attempt, generation FROM target_of_job(%(job_id)s)

-- A generation that a restore lost, or that was deleted, is left out: its document is neither made nor locked. A corpus that
-- was deleted takes none at all: a later one of its name has another key.
-- name: claim_documents
INSERT INTO documents (document_id, corpus_id, url, content_type)
SELECT document_id, corpus_id, url, content_type
FROM unnest(%(ids)s::text[], %(corpora)s::int4[], %(urls)s::text[], %(generations)s::int8[], %(keys)s::text[],
            %(types)s::text[])
    AS claimed (document_id, corpus_id, url, generation, corpus_key, content_type)
WHERE NOT EXISTS (
    SELECT FROM lost_generations AS lost
    WHERE claimed.generation > lost.after AND claimed.generation <= lost.upto)
    AND NOT EXISTS (
        SELECT FROM tombstones
        WHERE id IN (claimed.document_id, claimed.corpus_key)
            AND (id = claimed.corpus_key OR tombstones.generation >= claimed.generation))
ORDER BY document_id
ON CONFLICT (document_id) DO UPDATE SET updated_at = now()
RETURNING document_id, id, published, min_generation, indexed_at

-- name: take_row_blocks
SELECT next_chunk_block() AS block FROM generate_series(1, %(count)s)

-- The count is read back from the tables: a version is visible with every chunk and vector, or not at all.
-- name: make_visible
UPDATE documents AS d
SET published = v.generation, url = v.url, title = v.title, content_sha256 = v.content_sha256,
    job_id = v.job_id, chunk_count = v.chunks, model = v.model, dimension = v.dimension, updated_at = now(),
    text_generation = CASE WHEN v.text_rest IS NOT NULL THEN v.generation END, text_rest = v.text_rest,
    text_sha256 = v.text_sha256, text_length = v.text_length,
    page_starts = (SELECT array_agg(start::int4) FROM jsonb_array_elements_text(v.page->'page_starts') AS start),
    stale_since = NULL, indexed_at = now(), chunker = v.chunker, metadata = coalesce(v.metadata, d.metadata),
    content_type = v.page->>'content_type', language = v.page->>'language',
    published_at = (v.page->>'published_at')::timestamptz, fetched_at = (v.page->>'fetched_at')::timestamptz,
    owner = CASE WHEN d.owner = v.caller OR d.published IS NULL AND d.owner IS NULL THEN v.caller
        WHEN d.owner IS NOT NULL OR v.job_id IS NULL THEN '' END
FROM unnest(%(documents)s::int8[], %(generations)s::int8[], %(chunks)s::int4[], %(spaces)s::int4[],
            %(urls)s::text[], %(titles)s::text[], %(digests)s::text[], %(jobs)s::text[], %(models)s::text[],
            %(dimensions)s::int4[], %(chunkers)s::text[], %(rests)s::text[], %(texts)s::text[],
            %(lengths)s::int4[], %(pages)s::jsonb[], %(metadata)s::jsonb[], %(callers)s::text[])
    AS v (id, generation, chunks, space, url, title, content_sha256, job_id, model, dimension, chunker, text_rest,
          text_sha256, text_length, page, metadata, caller)
WHERE d.id = v.id AND (d.published IS NULL OR d.published < v.generation) AND d.min_generation <= v.generation
    AND v.chunks = (
        SELECT count(*) FROM memberships AS m
        JOIN chunks AS c ON c.id = m.chunk
        JOIN vectors AS e ON e.corpus = c.corpus AND e.space = v.space AND e.chunk = c.id
        WHERE m.document = v.id AND m.generation = v.generation)
RETURNING d.id, d.indexed_at

-- name: add_totals
INSERT INTO corpus_totals AS t (corpus, stripe, documents, chunks, words, bytes, first_chunk, last_chunk, indexed_at)
SELECT added.corpus, pg_backend_pid() %% {{stripes}}, added.documents, added.chunks, added.words, added.bytes,
    added.first_row, added.last_row, now()
FROM unnest(%(corpora)s::int4[], %(documents)s::int8[], %(chunks)s::int8[], %(words)s::int8[], %(bytes)s::int8[],
            %(first_rows)s::int4[], %(last_rows)s::int4[])
    AS added (corpus, documents, chunks, words, bytes, first_row, last_row)
ORDER BY added.corpus
ON CONFLICT (corpus, stripe) DO UPDATE
SET documents = t.documents + excluded.documents, chunks = t.chunks + excluded.chunks,
    words = t.words + excluded.words, bytes = t.bytes + excluded.bytes,
    first_chunk = least(t.first_chunk, excluded.first_chunk),
    last_chunk = greatest(t.last_chunk, excluded.last_chunk),
    indexed_at = greatest(t.indexed_at, excluded.indexed_at)

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

-- A term below 0 is of a whole text; the release before writes none.
-- name: drop_postings
WITH dropped AS (
    DELETE FROM postings AS p
    USING unnest(%(corpora)s::int4[], %(terms)s::int4[], %(rows)s::int4[]) AS v (corpus, term, chunk)
    WHERE p.corpus = v.corpus AND p.term = v.term AND p.chunk = v.chunk
    RETURNING p.term
)
SELECT count(*) FILTER (WHERE term >= 0) AS words FROM dropped

-- Reads the whole corpus: only for chunks whose terms can no longer be derived from their text.
-- name: drop_postings_by_scan
DELETE FROM postings WHERE corpus = ANY(%(corpora)s) AND chunk = ANY(%(rows)s)

-- name: lock_erased
SELECT id, corpus_id AS corpus, CASE WHEN published IS NOT NULL THEN chunk_count ELSE 0 END AS chunk_count FROM documents
WHERE document_id = ANY(%(documents)s) AND (published IS NULL OR published <= %(generation)s)
ORDER BY document_id FOR UPDATE

-- OFFSET 0 has the planner look up each row by its primary key. A document that was counted before has nothing left.
-- name: count_erased
INSERT INTO erasures (job_id, document_id, chunks, memberships, vectors, postings)
SELECT %(job_id)s, d.document_id, count(c.id), count(m.chunk), coalesce(sum(c.vectors), 0), coalesce(sum(c.terms), 0)
FROM documents AS d
CROSS JOIN LATERAL (SELECT chunk FROM memberships WHERE document = d.id OFFSET 0) AS m
LEFT JOIN LATERAL (
    SELECT id, terms, (SELECT count(*) FROM spaces AS s
        CROSS JOIN LATERAL (SELECT FROM vectors AS e
            WHERE e.corpus = chunks.corpus AND e.space = s.id AND e.chunk = chunks.id OFFSET 0) AS one) AS vectors
    FROM chunks WHERE id = m.chunk OFFSET 0
) AS c ON true
WHERE d.id = ANY(%(ids)s) GROUP BY d.document_id
ON CONFLICT DO NOTHING

-- name: erase_memberships
DELETE FROM memberships USING documents
WHERE documents.id = ANY(%(ids)s) AND memberships.document = documents.id
RETURNING documents.corpus_id AS corpus, memberships.chunk

-- name: erase_vectors
DELETE FROM vectors AS e
USING unnest(%(corpora)s::int4[], %(rows)s::int4[]) AS v (corpus, chunk), spaces AS s
WHERE e.corpus = v.corpus AND e.space = s.id AND e.chunk = v.chunk

-- The row itself goes with the rest of what the Orchestrator has of the document.
-- name: blank_documents
UPDATE documents SET published = NULL, title = NULL, content_sha256 = NULL, chunk_count = 0, job_id = NULL,
    model = NULL, dimension = NULL, stale_since = NULL, updated_at = now(), fenced_at = now(), indexed_at = NULL,
    fetched_at = NULL, published_at = NULL, content_type = NULL, language = NULL, metadata = NULL, text_generation = NULL,
    text_rest = NULL, text_sha256 = NULL, text_length = NULL, page_starts = NULL
WHERE id = ANY(%(ids)s)

-- Counted by the keys that the rows had.
-- name: left_of_erased
SELECT (SELECT count(*) FROM memberships WHERE document = ANY(%(ids)s))
    + (SELECT count(*) FROM chunks WHERE id = ANY(%(rows)s))
    + (SELECT count(*) FROM vectors AS e
       JOIN unnest(%(corpora)s::int4[], %(rows)s::int4[]) AS v (corpus, chunk) ON e.corpus = v.corpus AND e.chunk = v.chunk
       JOIN spaces AS s ON s.id = e.space)
    + (SELECT count(*) FROM postings AS p
       JOIN unnest(%(p_corpora)s::int4[], %(terms)s::int4[], %(p_rows)s::int4[]) AS k (corpus, term, chunk)
           ON p.corpus = k.corpus AND p.term = k.term AND p.chunk = k.chunk) AS "left"

-- name: erased
SELECT coalesce(sum(chunks), 0)::int AS chunks, coalesce(sum(memberships), 0)::int AS memberships,
    coalesce(sum(vectors), 0)::int AS vectors, coalesce(sum(postings), 0)::int AS postings
FROM erasures WHERE job_id = %(job_id)s AND document_id = ANY(%(documents)s)

-- name: stored_chunks
SELECT encode(c.chunk_id, 'hex') AS chunk_id FROM chunks AS c
JOIN vectors AS e ON e.corpus = c.corpus AND e.space = %(space)s AND e.chunk = c.id
WHERE c.chunk_id = ANY(%(chunk_ids)s)

-- Vectors of chunks with the same text, in documents that no caller but theirs submitted. Each row is looked up by its
-- key, as in `hits`; of a text that many chunks have the first sixteen are looked at.
-- name: vectors_of_texts
SELECT q.at, found.context, found.text, found.vector
FROM unnest(%(ats)s::int4[], %(corpora)s::int4[], %(terms)s::int4[], %(callers)s::text[])
    AS q (at, corpus, term, caller)
CROSS JOIN LATERAL (
    SELECT c.context, c.text, e.vector
    FROM (SELECT chunk FROM postings WHERE corpus = q.corpus AND term = q.term ORDER BY chunk LIMIT 16) AS p
    CROSS JOIN LATERAL (SELECT document, context, text FROM chunks WHERE id = p.chunk OFFSET 0) AS c
    CROSS JOIN LATERAL (SELECT owner FROM documents WHERE id = c.document OFFSET 0) AS d
    CROSS JOIN LATERAL (
        SELECT embedding::text AS vector FROM vectors
        WHERE corpus = q.corpus AND space = %(space)s AND chunk = p.chunk OFFSET 0
    ) AS e
    WHERE d.owner = q.caller
    LIMIT 1
) AS found

-- name: corpus_totals
SELECT q.at::int AS at, c.corpus_key AS key, c.id AS corpus, n.shared,
    coalesce(sum(t.chunks), 0)::int8 AS chunks, coalesce(sum(t.words), 0)::int8 AS words,
    coalesce(min(t.first_chunk), 0) AS first_row, coalesce(max(t.last_chunk), 0) AS last_row,
    (SELECT s.id FROM spaces AS s WHERE s.model = %(model)s AND s.dimension = %(dimension)s) AS space,
    (SELECT s.indexed_rows FROM spaces AS s WHERE s.model = %(model)s AND s.dimension = %(dimension)s)
        AS indexed_rows,
    (SELECT count(*) FROM spaces) AS spaces
FROM {{asked_corpora}}
CROSS JOIN LATERAL (SELECT id, corpus_key FROM corpora WHERE id = n.corpus OFFSET 0) AS c
LEFT JOIN corpus_totals AS t ON t.corpus = c.id
GROUP BY q.at, c.corpus_key, c.id, n.shared ORDER BY c.id

-- Two probes of the primary key tell whether a corpus has vectors of another space. Planning them takes 0.2 ms, so they
-- are left out while there is no other.
-- name: corpus_spaces
SELECT (SELECT min(space) FROM vectors WHERE corpus = q.corpus), (SELECT max(space) FROM vectors WHERE corpus = q.corpus)
FROM unnest(%(corpora)s::int4[]) AS q (corpus)

-- The chunks of the documents that match, as the text of an array. Each document of the corpora is looked at, and its chunks
-- are looked up by its number, whatever statistics there are. A condition that is NULL is left out of the plan.
-- name: matching_chunks
SELECT coalesce(array_agg(m.chunk), '{}')::text AS rows, count(*) AS chunks
FROM unnest(%(corpora)s::int4[]) AS t (corpus)
CROSS JOIN LATERAL (
    SELECT id, published FROM documents
    WHERE corpus_id = t.corpus AND published IS NOT NULL
        AND (%(url_prefix)s::text IS NULL OR starts_with(url, %(url_prefix)s::text))
        AND (%(language)s::text IS NULL OR starts_with(lower(language) || '-', lower(%(language)s::text) || '-'))
        AND (%(content_type)s::text IS NULL OR lower(content_type) = lower(%(content_type)s::text))
        AND {{within_published_at}} AND {{within_fetched_at}} AND {{within_indexed_at}}
        AND (%(metadata)s::jsonb IS NULL OR metadata @> %(metadata)s::jsonb)
        AND (%(dated)s::text[] IS NULL OR NOT EXISTS (
            SELECT FROM unnest(%(dated)s::text[], %(dated_since)s::timestamptz[], %(dated_before)s::timestamptz[])
                AS p (name, since, before)
            CROSS JOIN LATERAL (SELECT iso_time(metadata->>p.name) AS at OFFSET 0) AS said
            WHERE said.at IS NULL OR said.at < p.since OR said.at >= p.before))
    OFFSET 0
) AS d
CROSS JOIN LATERAL (
    SELECT chunk FROM memberships WHERE document = d.id AND generation = d.published OFFSET 0
) AS m

-- fragment: within_published_at
(%(published_since)s::timestamptz IS NULL OR published_at >= %(published_since)s::timestamptz)
AND (%(published_before)s::timestamptz IS NULL OR published_at < %(published_before)s::timestamptz)

-- fragment: within_fetched_at
(%(fetched_since)s::timestamptz IS NULL OR fetched_at >= %(fetched_since)s::timestamptz)
AND (%(fetched_before)s::timestamptz IS NULL OR fetched_at < %(fetched_before)s::timestamptz)

-- fragment: within_indexed_at
(%(indexed_since)s::timestamptz IS NULL OR indexed_at >= %(indexed_since)s::timestamptz)
AND (%(indexed_before)s::timestamptz IS NULL OR indexed_at < %(indexed_before)s::timestamptz)

-- One statement, one snapshot: all rows belong to versions that are published at that time.
-- Each row is looked up by its key, whatever statistics there are: OFFSET 0 keeps the planner from joining
-- in another order. Before the first ANALYZE it would read the whole corpus, documents first.
-- name: hits
SELECT encode(c.chunk_id, 'hex') AS chunk_id, o.corpus_key, c.text, d.url AS source_url, d.title,
    d.document_id, m.ordinal, c.context, m.start_at AS start, m.end_at AS "end",
    d.published AS generation, d.model, d.dimension, c.analyzer_version AS analyzer, d.chunker, d.indexed_at,
    d.stale_since IS NOT NULL AS stale, d.metadata, d.facts,
    CASE WHEN d.text_generation = d.published THEN nullif(width_bucket(m.start_at, d.page_starts), 0) END AS page,
    CASE WHEN %(neighbours)s::int4 > 0 THEN ARRAY(
        SELECT jsonb_build_object('chunk_id', encode(n.chunk_id, 'hex'), 'text', n.text, 'context', n.context,
                                  'ordinal', o.ordinal, 'start', o.start_at, 'end', o.end_at)
        FROM memberships AS o
        CROSS JOIN LATERAL (SELECT chunk_id, context, text FROM chunks WHERE id = o.chunk OFFSET 0) AS n
        WHERE o.document = d.id AND o.generation = d.published AND o.chunk <> c.id
            AND o.ordinal BETWEEN m.ordinal - %(neighbours)s::int4 AND m.ordinal + %(neighbours)s::int4
        ORDER BY o.ordinal
    ) END AS neighbours
FROM unnest(%(chunk_ids)s::bytea[]) AS q (chunk_id)
CROSS JOIN LATERAL (
    SELECT id, document, chunk_id, analyzer_version, context, text FROM chunks WHERE chunk_id = q.chunk_id OFFSET 0
) AS c
CROSS JOIN LATERAL (
    SELECT id, document_id, corpus_id, published, url, title, model, dimension, chunker, indexed_at, stale_since, metadata,
        jsonb_build_object('content_type', content_type, 'language', language, 'published_at', published_at,
                           'fetched_at', fetched_at) AS facts,
        text_generation, page_starts
    FROM documents WHERE id = c.document OFFSET 0
) AS d
CROSS JOIN LATERAL (
    SELECT ordinal, start_at, end_at FROM memberships
    WHERE document = d.id AND generation = d.published AND chunk = c.id OFFSET 0
) AS m
CROSS JOIN LATERAL (SELECT corpus_key FROM corpora WHERE id = d.corpus_id OFFSET 0) AS o
WHERE o.corpus_key = ANY(%(keys)s)

-- A term's frequency is counted in eight equal ranges of each corpus's rows, up to 64 postings in each; a range
-- with more is extrapolated from their density. Exact for rare terms, within a few percent for common
-- ones, and the cost has a bound; a table of frequencies would add a third to what a document costs to write.
-- Whole numbers, as in `rank_by_words`.
-- name: term_frequencies
SELECT q.term, sum(CASE WHEN s.found < {{range_limit}} THEN s.found::int4
                        ELSE (s.found * t.width::float8 / (s.last - r.low + 1))::int4 END)::int8 AS frequency
FROM unnest(%(corpora)s::int4[], %(firsts)s::int4[], %(lasts)s::int4[], %(widths)s::int4[])
    AS t (corpus, first, last, width)
CROSS JOIN unnest(%(terms)s::int4[]) AS q (term)
CROSS JOIN LATERAL generate_series(t.first, t.last, t.width) AS r (low)
CROSS JOIN LATERAL (
    SELECT count(*) AS found, max(chunk) AS last
    FROM (SELECT p.chunk FROM postings AS p
          WHERE p.corpus = t.corpus AND p.term = q.term AND p.chunk >= r.low AND p.chunk < r.low + t.width
          ORDER BY p.chunk LIMIT {{range_limit}}) AS seen
) AS s
WHERE s.found > 0
GROUP BY q.term

-- NULL is all chunks. As a subquery's value the array is no constant whose elements the planner would weigh one by one.
-- fragment: among_rows
(%(rows)s::int4[] IS NULL OR chunk = ANY((SELECT %(rows)s::int4[])::int4[]))

-- The rows of a list's candidates with what ranks them among equal scores, whatever list they are in.
-- name: candidates
SELECT id, encode(chunk_id, 'hex'), document::text FROM chunks WHERE id = ANY(%(rows)s)

-- OFFSET 0 as in `hits`: without statistics, a long question would be joined with all words of the corpus.
-- Whole numbers, so that the sum is the same in every order, whatever the plan.
-- name: rank_by_words
SELECT p.chunk AS row_id,
    sum((q.weight * p.tf / (p.tf + %(base)s::float8 + %(slope)s::float8 * p.dl))::int4) AS score
FROM unnest(%(corpora)s::int4[]) AS t (corpus)
CROSS JOIN unnest(%(terms)s::int4[], %(weights)s::float8[]) AS q (term, weight)
CROSS JOIN LATERAL (
    SELECT chunk, tf, dl FROM postings WHERE corpus = t.corpus AND term = q.term AND {{among_rows}} OFFSET 0
) AS p
GROUP BY p.chunk
ORDER BY score DESC, p.chunk
LIMIT {{most_tied}}

-- name: nearest_exact
SELECT e.chunk AS row_id, -(e.embedding <#> %(vector)s::halfvec) AS similarity
FROM vectors AS e WHERE e.corpus = ANY(%(corpora)s) AND e.space = %(space)s AND {{among_rows}}
ORDER BY e.embedding <#> %(vector)s::halfvec, e.chunk LIMIT {{most_tied}}

-- name: nearest_approximate
SELECT n.row_id, n.similarity
FROM unnest(%(corpora)s::int4[]) AS t (corpus)
CROSS JOIN LATERAL nearest_approximate(
    t.corpus, %(space)s, %(vector)s::halfvec, %(dimension)s, %(probes)s, %(depth)s, %(rows)s::int4[]) AS n

-- name: count_caller_chunks
SELECT count_caller_chunks(%(caller_id)s, %(chunks)s, %(most)s)

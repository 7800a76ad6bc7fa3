-- Statements of corpora as callers see them.

-- Figures of the corpora `n`, each looked up by its number: a few rows of totals, and one probe per embedding space. In
-- their order the first vector is found by the index, although a planner with statistics may expect one in every row.
-- fragment: corpus_figures
SELECT n.name AS corpus_name, 'corpus_' || replace(n.public_id::text, '-', '') AS corpus_id, n.access,
    n.documents_before + t.documents AS documents, t.chunks, n.bytes_before + t.bytes AS bytes,
    ARRAY(SELECT jsonb_build_object('model', s.model, 'dimension', s.dimension) FROM spaces AS s
          WHERE (SELECT v.chunk FROM vectors AS v WHERE v.corpus = n.corpus AND v.space = s.id ORDER BY v.chunk LIMIT 1)
              IS NOT NULL
          ORDER BY s.model, s.dimension) AS models,
    c.created_at, t.indexed_at
FROM found AS n CROSS JOIN LATERAL (
    SELECT created_at FROM corpora WHERE id = n.corpus OFFSET 0
) AS c CROSS JOIN LATERAL (
    SELECT coalesce(sum(documents), 0)::int8 AS documents, coalesce(sum(chunks), 0)::int8 AS chunks,
        coalesce(sum(bytes), 0)::int8 AS bytes, max(indexed_at) AS indexed_at
    FROM corpus_totals WHERE corpus = n.corpus
) AS t

-- Behind a name and an id: of the caller's own a part of an index, and all that others share with it, which are few.
-- name: list_corpora
WITH found AS (
    SELECT * FROM (
        (SELECT *, 'write' AS access FROM corpus_names
         WHERE owner = %(owner)s AND (%(after)s::text IS NULL OR (name, public_id) > (%(after)s, %(after_id)s::uuid))
         ORDER BY name, public_id LIMIT %(limit)s)
        UNION ALL
        SELECT own.*, 'read' FROM (SELECT DISTINCT corpus FROM corpus_grants WHERE grantee = %(caller_id)s) AS shared
        CROSS JOIN LATERAL (SELECT * FROM corpus_names WHERE corpus = shared.corpus OFFSET 0) AS own
        WHERE own.owner <> %(owner)s
            AND (%(after)s::text IS NULL OR (own.name, own.public_id) > (%(after)s, %(after_id)s::uuid))
    ) AS readable ORDER BY name, public_id LIMIT %(limit)s
)
{{corpus_figures}}
ORDER BY n.name, n.public_id

-- Numbers of the corpora that a caller names, and whether another one shares them with it, in order: by name, by id if it may read it, or
-- (only our own code) by key.
-- fragment: asked_corpora
unnest(%(names)s::text[], %(public_ids)s::uuid[], %(keys)s::text[]) WITH ORDINALITY AS q (name, public_id, key, at)
CROSS JOIN LATERAL (
    SELECT corpus, false AS shared FROM corpus_names WHERE owner = %(owner)s AND name = q.name
    UNION ALL SELECT corpus, owner <> %(owner)s FROM corpus_names AS named
    WHERE public_id = q.public_id AND (owner = %(owner)s OR EXISTS (
        SELECT FROM corpus_grants WHERE corpus = named.corpus AND grantee = %(caller_id)s))
    UNION ALL SELECT id, false FROM corpora WHERE corpus_key = q.key
    OFFSET 0
) AS n

-- name: named_corpora
SELECT n.corpus, n.shared FROM {{asked_corpora}}

-- name: find_corpus
WITH found AS (
    SELECT own.*, CASE WHEN own.owner = %(owner)s THEN 'write' ELSE 'read' END AS access
    FROM {{asked_corpora}} CROSS JOIN LATERAL (SELECT * FROM corpus_names WHERE corpus = n.corpus OFFSET 0) AS own
)
{{corpus_figures}}

-- name: rename_corpus
SELECT rename_corpus(%(owner)s, %(name)s, %(public_id)s::uuid, %(new_name)s, %(who)s) AS corpus

-- name: share_corpus
SELECT share_corpus(%(owner)s, %(name)s, %(public_id)s::uuid, %(grantee)s, %(most)s, %(who)s) AS corpus

-- name: unshare_corpus
SELECT unshare_corpus(%(owner)s, %(name)s, %(public_id)s::uuid, %(grantee)s, %(who)s) AS corpus

-- One row without a grant for a corpus that no other caller may read; none for one that is not the owner's.
-- name: corpus_grants
SELECT g.given AS caller_id, g.granted_at FROM corpus_names AS n
LEFT JOIN LATERAL (SELECT given, granted_at FROM corpus_grants WHERE corpus = n.corpus OFFSET 0) AS g ON true
WHERE n.owner = %(owner)s AND (n.name = %(name)s OR n.public_id = %(public_id)s::uuid)
ORDER BY g.given

-- Figures as corpus_totals has them.
-- name: stored_figures
SELECT (n.documents_before + coalesce(sum(t.documents), 0))::int8 AS documents, coalesce(sum(t.chunks), 0)::int8 AS chunks,
    coalesce(sum(t.words), 0)::int8 AS words, (n.bytes_before + coalesce(sum(t.bytes), 0))::int8 AS bytes,
    max(t.indexed_at)::text AS indexed_at
FROM corpus_names AS n LEFT JOIN corpus_totals AS t ON t.corpus = n.corpus
WHERE n.corpus = %(corpus)s GROUP BY n.documents_before, n.bytes_before

-- What there is of some documents, each at one moment. Everything is looked up by its key, whatever statistics there are.
-- name: held_documents
SELECT d.id AS row_id, d.document_id, d.chunk_count AS expected, (d.published IS NOT NULL AND d.chunk_count > 0) AS published,
    held.*
FROM (
    SELECT id, document_id, chunk_count, published, model, dimension FROM documents
    WHERE corpus_id = %(corpus)s AND id > %(after)s ORDER BY corpus_id, id LIMIT %(limit)s
) AS d CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE m.generation = d.published) AS chunks,
        count(*) FILTER (WHERE m.generation IS DISTINCT FROM d.published) AS superseded,
        count(DISTINCT m.ordinal) FILTER (WHERE m.generation = d.published AND m.ordinal < d.chunk_count) AS numbered,
        count(c.id) AS texts, count(e.chunk) AS vectors, coalesce(sum(c.words), 0)::int8 AS words,
        coalesce(sum(c.terms), 0)::int8 AS terms, coalesce(sum(octet_length(c.text)), 0)::int8 AS bytes
    FROM memberships AS m LEFT JOIN LATERAL (
        SELECT id, words, terms, text, corpus FROM chunks WHERE id = m.chunk AND corpus = %(corpus)s OFFSET 0
    ) AS c ON true LEFT JOIN LATERAL (
        SELECT chunk FROM spaces AS s JOIN vectors AS v ON v.space = s.id
        WHERE s.model = d.model AND s.dimension = d.dimension AND v.corpus = c.corpus AND v.chunk = c.id OFFSET 0
    ) AS e ON true
    WHERE m.document = d.id
) AS held
ORDER BY d.id

-- name: held_postings
SELECT count(*) AS postings FROM postings WHERE corpus = %(corpus)s AND term >= %(first)s AND term < %(behind)s

-- name: recount_corpus
SELECT recount_corpus(%(corpus)s)

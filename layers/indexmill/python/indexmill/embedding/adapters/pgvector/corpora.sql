-- Statements of corpora as callers see them.

-- Figures of the corpora `n`, each looked up by its number: a few rows of totals, and one probe per embedding space.
-- fragment: corpus_figures
SELECT n.name AS corpus_name, 'corpus_' || replace(n.public_id::text, '-', '') AS corpus_id, n.access,
    n.documents_before + t.documents AS documents, t.chunks, n.bytes_before + t.bytes AS bytes,
    ARRAY(SELECT jsonb_build_object('model', s.model, 'dimension', s.dimension) FROM spaces AS s
          WHERE (SELECT v.space FROM vectors AS v WHERE v.corpus = n.corpus AND v.space = s.id LIMIT 1) IS NOT NULL
          ORDER BY s.model, s.dimension) AS models,
    c.created_at, t.indexed_at
FROM found AS n CROSS JOIN LATERAL (
    SELECT created_at FROM corpora WHERE id = n.corpus OFFSET 0
) AS c CROSS JOIN LATERAL (
    SELECT coalesce(sum(documents), 0)::int8 AS documents, coalesce(sum(chunks), 0)::int8 AS chunks,
        coalesce(sum(bytes), 0)::int8 AS bytes, max(indexed_at) AS indexed_at
    FROM corpus_totals WHERE corpus = n.corpus
) AS t

-- name: list_corpora
WITH found AS (
    SELECT *, 'write' AS access FROM corpus_names
    WHERE owner = %(owner)s AND (%(after)s::text IS NULL OR (name, public_id) > (%(after)s, %(after_id)s::uuid))
    ORDER BY name, public_id LIMIT %(limit)s
)
{{corpus_figures}}
ORDER BY n.name, n.public_id

-- The corpus that a caller means by a name or an id, if the caller may read it.
-- fragment: named_corpus
SELECT *, 'write' AS access FROM corpus_names
WHERE owner = %(owner)s AND name = %(name)s
UNION ALL
SELECT *, 'write' AS access FROM corpus_names
WHERE public_id = %(public_id)s::uuid AND owner = %(owner)s

-- name: find_corpus
WITH found AS ({{named_corpus}})
{{corpus_figures}}

-- name: number_of_corpus
WITH found AS ({{named_corpus}})
SELECT corpus FROM found

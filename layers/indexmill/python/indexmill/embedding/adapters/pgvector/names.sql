-- name: add_corpora
INSERT INTO corpora (corpus_key, caller_id, name)
SELECT * FROM unnest(%(keys)s::text[], %(callers)s::text[], %(names)s::text[])
    AS added (corpus_key, caller_id, name)
WHERE NOT EXISTS (SELECT FROM corpora AS c WHERE c.corpus_key = added.corpus_key)
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
SELECT nextval('generation_seq') AS generation

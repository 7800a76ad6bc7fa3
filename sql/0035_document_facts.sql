-- What search can be filtered by and says of a document: facts of its published version, and its caller's metadata.
-- Without values: what the release before published says nothing.

ALTER TABLE documents
    ADD COLUMN indexed_at TIMESTAMPTZ, ADD COLUMN fetched_at TIMESTAMPTZ, ADD COLUMN published_at TIMESTAMPTZ,
    ADD COLUMN content_type TEXT, ADD COLUMN language TEXT, ADD COLUMN metadata JSONB;

-- Null: the job leaves the document's metadata as it is.
ALTER TABLE jobs ADD COLUMN metadata JSONB;

-- A date or time of ISO 8601, as text has it; NULL for any other text. Without an offset it is one of UTC.
CREATE FUNCTION iso_time(value TEXT) RETURNS TIMESTAMPTZ LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN value ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}$'
        THEN CASE WHEN pg_input_is_valid(value, 'date') THEN value::date::timestamp AT TIME ZONE 'UTC' END
    WHEN value ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?$'
        THEN CASE WHEN pg_input_is_valid(value, 'timestamp') THEN value::timestamp AT TIME ZONE 'UTC' END
    WHEN value ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})$'
        THEN CASE WHEN pg_input_is_valid(value, 'timestamptz') THEN value::timestamptz END
END;

-- As the one of 0016, among the chunks `rows` alone; NULL is all. The index is read until the list is full.
CREATE FUNCTION nearest_approximate(
    of_corpus INTEGER, of_space INTEGER, question halfvec, dimension INTEGER, probes INTEGER, depth INTEGER, rows INTEGER[]
) RETURNS TABLE (row_id INTEGER, similarity FLOAT8) LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('enable_sort', 'off', true), set_config('ivfflat.iterative_scan', 'relaxed_order', true),
        set_config('ivfflat.probes', probes::text, true);
    RETURN QUERY EXECUTE format(
        'SELECT e.chunk, -(e.embedding::halfvec(%1$s) <#> $1::halfvec(%1$s)) FROM vectors AS e'
        ' WHERE e.corpus = $2 AND e.space = %2$s AND ($4 IS NULL OR e.chunk = ANY($4))'
        ' ORDER BY e.embedding::halfvec(%1$s) <#> $1::halfvec(%1$s) LIMIT $3', dimension, of_space)
    USING question, of_corpus, depth, rows;
END
$$;

REVOKE ALL ON FUNCTION iso_time, nearest_approximate(INTEGER, INTEGER, halfvec, INTEGER, INTEGER, INTEGER, INTEGER[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION iso_time, nearest_approximate(INTEGER, INTEGER, halfvec, INTEGER, INTEGER, INTEGER, INTEGER[])
    TO indexmill_embedding;

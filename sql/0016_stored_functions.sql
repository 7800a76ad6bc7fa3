-- What would pin a session of a connection pooler (RDS Proxy: sequence functions, SET and set_config), in functions: a
-- pooler does not see into them. The release before uses the sequences itself, so its grants stay.

-- The sequence is bound when the function is made, whatever search_path a caller has; the planner inlines the call.
CREATE FUNCTION next_generation() RETURNS BIGINT LANGUAGE sql VOLATILE
RETURN nextval('generation_seq');

CREATE FUNCTION next_chunk_block() RETURNS INTEGER LANGUAGE sql VOLATILE
RETURN nextval('chunk_blocks')::integer;

-- The nearest vectors through the space's approximate index, in the order in which the index gives them. The space and
-- its dimension must be literals, as in the partial index, so the text is put together. Every other plan has to sort;
-- without statistics the planner takes a corpus for a few rows that are sorted at once, so sorting is ruled out. The
-- settings end with the transaction. A SET clause of the function could not name those of pgvector: a restore
-- makes functions before the extension's library is loaded, and only a superuser may then name unknown settings.
CREATE FUNCTION nearest_approximate(
    of_corpus INTEGER, of_space INTEGER, question halfvec, dimension INTEGER, probes INTEGER, depth INTEGER
) RETURNS TABLE (row_id INTEGER, similarity FLOAT8) LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('enable_sort', 'off', true), set_config('ivfflat.iterative_scan', 'relaxed_order', true),
        set_config('ivfflat.probes', probes::text, true);
    RETURN QUERY EXECUTE format(
        'SELECT e.chunk, -(e.embedding::halfvec(%1$s) <#> $1::halfvec(%1$s)) FROM vectors AS e'
        ' WHERE e.corpus = $2 AND e.space = %2$s'
        ' ORDER BY e.embedding::halfvec(%1$s) <#> $1::halfvec(%1$s) LIMIT $3', dimension, of_space)
    USING question, of_corpus, depth;
END
$$;

REVOKE ALL ON FUNCTION next_generation, next_chunk_block, nearest_approximate FROM PUBLIC;
GRANT EXECUTE ON FUNCTION next_generation TO indexmill_orchestrator, indexmill_embedding;
GRANT EXECUTE ON FUNCTION next_chunk_block, nearest_approximate TO indexmill_embedding;

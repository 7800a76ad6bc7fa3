-- The approximate index of a space is built without a lock that stops searches or writers, by sql/build_index.py, the
-- only one to build. What is due and how it is divided is said here once.

ALTER TABLE spaces ADD COLUMN index_tried_at TIMESTAMPTZ;

CREATE FUNCTION ivfflat_lists(over_rows BIGINT) RETURNS INTEGER LANGUAGE sql IMMUTABLE
RETURN least(1000, greatest(16, floor(sqrt(over_rows))))::integer;

-- Spaces with something to build or to clean up, unless that was tried within `again_after`: `outgrown` when a corpus is
-- too large for exact search and the index is missing, or there are four times as many chunks as when it was built; the
-- others have an index that a build left behind. pgvector indexes at most 4,000 half-precision numbers.
CREATE FUNCTION index_builds_due(again_after INTERVAL)
RETURNS TABLE (space INTEGER, dimension INTEGER, over_rows BIGINT, lists INTEGER, outgrown BOOLEAN) LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH sizes AS (
        SELECT coalesce(max(chunks), 0)::bigint AS largest, coalesce(sum(chunks), 0)::bigint AS total
        FROM (SELECT sum(t.chunks) AS chunks FROM corpus_totals AS t GROUP BY t.corpus) AS corpus
    ), looked_at AS (
        SELECT s.id, s.dimension, sizes.total,
            sizes.largest >= 10000 AND sizes.total >= 4 * s.indexed_rows AND s.dimension <= 4000 AS outgrown,
            to_regclass('public.vectors_space_' || s.id || '_new') IS NOT NULL
                OR to_regclass('public.vectors_space_' || s.id || '_old') IS NOT NULL AS left_behind
        FROM spaces AS s, sizes WHERE s.index_tried_at IS NULL OR s.index_tried_at <= now() - again_after
    )
    SELECT id, looked_at.dimension, total, ivfflat_lists(total), looked_at.outgrown
    FROM looked_at WHERE looked_at.outgrown OR left_behind ORDER BY id;
END;

REVOKE ALL ON FUNCTION ivfflat_lists, index_builds_due FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ivfflat_lists, index_builds_due TO indexmill_orchestrator;

-- The release before calls this after every 2,000 chunks: it waits for nothing and builds nothing any more.
CREATE OR REPLACE FUNCTION build_vector_index(of_space INTEGER, lists INTEGER, over_rows BIGINT) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
END
$$;

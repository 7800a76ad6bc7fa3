-- Corpora by name, and their sizes. A name is resolved by its row: a corpus keeps its key when it is renamed. The rows are
-- beside `corpora`, so that nothing waits for a rewrite of that table, and few enough to be mirrored.

-- Corpora are made by one kind of row, `corpora`; its trigger (below) makes the row here.
LOCK TABLE corpora IN SHARE ROW EXCLUSIVE MODE;

CREATE TABLE corpus_names (
    -- The caller whose name it is; '' for the corpora that all callers share.
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    corpus INTEGER NOT NULL UNIQUE REFERENCES corpora ON DELETE CASCADE,
    -- What those who may read the corpus know it by, whatever its name is. Nothing can be concluded from it.
    public_id UUID NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    since TIMESTAMPTZ NOT NULL DEFAULT now(),
    -- Documents and bytes that corpus_totals does not count: written by the release before. NULL while nobody counted them.
    documents_before BIGINT,
    bytes_before BIGINT,
    PRIMARY KEY (owner, name)
);
CREATE INDEX corpus_names_uncounted ON corpus_names (since) WHERE documents_before IS NULL;

-- Keys of the corpora that had one name after the other; the first is the one that contracts/identity.py derives. A name
-- contains no #.
CREATE FUNCTION corpus_key_of(owner TEXT, name TEXT, nth INTEGER) RETURNS TEXT LANGUAGE sql IMMUTABLE
RETURN corpus_key_of(owner, CASE WHEN nth = 0 THEN name ELSE name || '#' || nth END);

CREATE FUNCTION owner_of_corpus(key TEXT, caller TEXT, name TEXT) RETURNS TEXT LANGUAGE plpgsql IMMUTABLE
SET search_path = public, pg_temp AS $$
BEGIN
    FOR nth IN 0..100 LOOP
        IF key = corpus_key_of('', name, nth) THEN
            RETURN '';
        ELSIF key = corpus_key_of(caller, name, nth) THEN
            RETURN caller;
        END IF;
    END LOOP;
    RETURN caller;
END
$$;

INSERT INTO corpus_names (owner, name, corpus)
SELECT CASE WHEN corpus_key = corpus_key_of('', name) THEN '' ELSE caller_id END, name, id
FROM corpora ORDER BY id ON CONFLICT DO NOTHING;
-- From here on all is counted.
ALTER TABLE corpus_names ALTER documents_before SET DEFAULT 0, ALTER bytes_before SET DEFAULT 0;

-- Whoever has a corpus is known as a caller; and each corpus has its name. A second one of that name is refused
-- (unique_violation), and the transaction that runs again finds the first.
CREATE OR REPLACE FUNCTION caller_of_corpus() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO callers (caller_id, root) VALUES (NEW.caller_id, NEW.caller_id) ON CONFLICT DO NOTHING;
    INSERT INTO corpus_names (owner, name, corpus)
    VALUES (owner_of_corpus(NEW.corpus_key, NEW.caller_id, NEW.name), NEW.name, NEW.id);
    RETURN NULL;
END
$$;

-- Of each publish, in the row that it changes anyway: documents with chunks, bytes of their chunks' texts, and when.
ALTER TABLE corpus_totals
    ADD COLUMN documents BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN indexed_at TIMESTAMPTZ;

-- Count what the release before wrote, in at most `corpora` corpora with at most `most` chunks together, and return how many
-- were counted. One snapshot has both the rows and what is counted of them already. Functions of the release before end
-- within a quarter of an hour.
CREATE FUNCTION count_old_corpora(corpora INTEGER, most BIGINT) RETURNS INTEGER LANGUAGE sql SECURITY DEFINER
SET search_path = public, pg_temp
BEGIN ATOMIC
    WITH uncounted AS (
        SELECT n.corpus, coalesce((SELECT sum(t.chunks) FROM corpus_totals AS t WHERE t.corpus = n.corpus), 0) AS chunks
        FROM corpus_names AS n
        WHERE n.documents_before IS NULL AND n.since <= now() - interval '15 minutes'
        ORDER BY n.since LIMIT corpora FOR UPDATE SKIP LOCKED
    ), chosen AS (
        SELECT corpus FROM (
            SELECT corpus, sum(chunks) OVER (ORDER BY chunks, corpus) AS chunks FROM uncounted
        ) AS each WHERE chunks <= most
    ), held AS (
        SELECT chosen.corpus, count(*) AS documents, coalesce(sum(texts.bytes), 0)::bigint AS bytes
        FROM chosen CROSS JOIN LATERAL (
            SELECT id, published FROM documents
            WHERE corpus_id = chosen.corpus AND published IS NOT NULL AND chunk_count > 0 OFFSET 0
        ) AS d CROSS JOIN LATERAL (
            SELECT sum(octet_length(c.text)) AS bytes FROM memberships AS m CROSS JOIN LATERAL (
                SELECT text FROM chunks WHERE id = m.chunk OFFSET 0
            ) AS c
            WHERE m.document = d.id AND m.generation = d.published
        ) AS texts
        GROUP BY chosen.corpus
    ), counted AS (
        SELECT chosen.corpus, coalesce(sum(t.documents), 0) AS documents, coalesce(sum(t.bytes), 0) AS bytes
        FROM chosen LEFT JOIN corpus_totals AS t ON t.corpus = chosen.corpus GROUP BY chosen.corpus
    ), done AS (
        UPDATE corpus_names AS n
        SET documents_before = coalesce(held.documents, 0) - counted.documents,
            bytes_before = coalesce(held.bytes, 0) - counted.bytes
        FROM counted LEFT JOIN held ON held.corpus = counted.corpus WHERE n.corpus = counted.corpus
        RETURNING n.corpus
    )
    SELECT count(*)::integer FROM done;
END;

GRANT SELECT ON corpus_names TO indexmill_embedding;
REVOKE ALL ON FUNCTION corpus_key_of(TEXT, TEXT, INTEGER), owner_of_corpus, count_old_corpora FROM PUBLIC;
GRANT EXECUTE ON FUNCTION count_old_corpora TO indexmill_orchestrator;

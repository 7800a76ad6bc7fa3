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
-- From here on all is counted, but for what functions of the release before write beside this one: an hour at most.
DO $$
DECLARE
    counted TEXT := '0';
BEGIN
    IF EXISTS (SELECT FROM corpora) THEN
        counted := format('CASE WHEN now() > %L::timestamptz THEN 0 END', now() + interval '1 hour');
    END IF;
    EXECUTE format('ALTER TABLE corpus_names ALTER documents_before SET DEFAULT %1$s, ALTER bytes_before SET DEFAULT %1$s', counted);
END
$$;

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

-- The key of the corpus that has the name, or of the one that a submit is about to make. plpgsql: planned once per connection.
CREATE FUNCTION key_of_corpus(of_owner TEXT, of_name TEXT) RETURNS TEXT LANGUAGE plpgsql STABLE
SET search_path = public, pg_temp AS $$
DECLARE
    key TEXT;
    nth INTEGER := 0;
BEGIN
    SELECT c.corpus_key INTO key FROM corpus_names AS n JOIN corpora AS c ON c.id = n.corpus
    WHERE n.owner = of_owner AND n.name = of_name;
    WHILE NOT FOUND LOOP
        key := corpus_key_of(of_owner, of_name, nth);
        -- Corpora that had the name before keep the keys that they have.
        PERFORM FROM (SELECT) AS one WHERE NOT EXISTS (SELECT FROM corpora WHERE corpus_key = key);
        nth := nth + 1;
    END LOOP;
    RETURN key;
END
$$;

-- The same, and the corpus is there when this returns: for a write that no submit precedes.
CREATE FUNCTION make_corpus(of_owner TEXT, caller TEXT, of_name TEXT) RETURNS TEXT LANGUAGE plpgsql
SET search_path = public, pg_temp AS $$
DECLARE
    key TEXT;
BEGIN
    FOR try IN 1..5 LOOP
        key := key_of_corpus(of_owner, of_name);
        IF EXISTS (SELECT FROM corpora WHERE corpus_key = key) THEN
            RETURN key;
        END IF;
        BEGIN
            INSERT INTO corpora (corpus_key, caller_id, name) VALUES (key, caller, of_name)
            ON CONFLICT (corpus_key) DO NOTHING;
        EXCEPTION WHEN unique_violation THEN
            -- Another corpus got the name just now.
            NULL;
        END;
    END LOOP;
    RAISE serialization_failure USING MESSAGE = 'corpora of this name change too fast';
END
$$;

-- Give a corpus another name, and return its number; 0 when another one has that name, NULL for an unknown corpus. Jobs
-- have its key, so those that are in flight stay with it.
CREATE FUNCTION rename_corpus(of_owner TEXT, of_name TEXT, id UUID, new_name TEXT, who JSONB) RETURNS INTEGER
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    found_one corpus_names;
BEGIN
    SELECT * INTO found_one FROM corpus_names
    WHERE owner = of_owner AND (name = of_name OR public_id = id) FOR UPDATE;
    IF found_one.name = new_name OR found_one.corpus IS NULL THEN
        RETURN found_one.corpus;
    END IF;
    BEGIN
        UPDATE corpus_names SET name = new_name WHERE corpus = found_one.corpus;
    EXCEPTION WHEN unique_violation THEN
        RETURN 0;
    END;
    UPDATE corpora SET name = new_name WHERE corpora.id = found_one.corpus;
    PERFORM audit_corpus('corpus_renamed', found_one.corpus, who, jsonb_build_object(
        'corpus_name', found_one.name, 'new_name', new_name));
    RETURN found_one.corpus;
END
$$;

-- What a caller did to a corpus, by the claims `who` that its request had.
CREATE FUNCTION audit_corpus(event TEXT, corpus INTEGER, who JSONB, fields JSONB) RETURNS void LANGUAGE sql
SET search_path = public, pg_temp
BEGIN ATOMIC
    INSERT INTO audit_events (event, caller_id, caller_type, tier, fields)
    SELECT audit_corpus.event, who->>'caller_id', coalesce(who->>'caller_type', 'unknown'), who->>'tier',
        jsonb_strip_nulls(jsonb_build_object(
            'corpus_id', 'corpus_' || replace(n.public_id::text, '-', ''), 'request_id', who->>'request_id') || fields)
    FROM corpus_names AS n WHERE n.corpus = audit_corpus.corpus;
END;

-- Callers who may read a corpus of another one. `given` is the id that its owner was told, `grantee` the caller that this is
-- an id of, which the owner does not see: an unknown id and a known one look the same. Ends with the corpus.
CREATE TABLE corpus_grants (
    corpus INTEGER NOT NULL REFERENCES corpora ON DELETE CASCADE,
    given TEXT NOT NULL,
    grantee TEXT NOT NULL,
    granted_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (corpus, given)
);
CREATE INDEX corpus_grants_grantee ON corpus_grants (grantee);

-- Grants follow a caller to the one that it becomes an alias of.
CREATE FUNCTION grants_follow_alias() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE corpus_grants SET grantee = NEW.root WHERE grantee = NEW.caller_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER grants AFTER INSERT OR UPDATE OF root ON callers FOR EACH ROW
    WHEN (NEW.root <> NEW.caller_id) EXECUTE FUNCTION grants_follow_alias();

-- Let a caller read the corpus, or end that. Returns as rename_corpus does: 0 when `most` have a grant already.
CREATE FUNCTION share_corpus(of_owner TEXT, of_name TEXT, id UUID, with_id TEXT, most INTEGER, who JSONB) RETURNS INTEGER
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    shared INTEGER;
BEGIN
    -- Whoever links the id right now is waited for.
    LOCK TABLE callers IN SHARE MODE;
    SELECT corpus INTO shared FROM corpus_names
    WHERE owner = of_owner AND (name = of_name OR public_id = id) FOR UPDATE;
    IF shared IS NULL OR EXISTS (SELECT FROM corpus_grants WHERE corpus = shared AND given = with_id) THEN
        RETURN shared;
    ELSIF (SELECT count(*) FROM corpus_grants WHERE corpus = shared) >= most THEN
        RETURN 0;
    END IF;
    INSERT INTO corpus_grants (corpus, given, grantee) VALUES (shared, with_id, root_of(with_id));
    PERFORM audit_corpus('corpus_shared', shared, who, jsonb_build_object('grantee', with_id));
    RETURN shared;
END
$$;

CREATE FUNCTION unshare_corpus(of_owner TEXT, of_name TEXT, id UUID, with_id TEXT, who JSONB) RETURNS INTEGER
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    shared INTEGER;
BEGIN
    SELECT corpus INTO shared FROM corpus_names
    WHERE owner = of_owner AND (name = of_name OR public_id = id) FOR UPDATE;
    DELETE FROM corpus_grants WHERE corpus = shared AND given = with_id;
    IF FOUND THEN
        PERFORM audit_corpus('corpus_unshared', shared, who, jsonb_build_object('grantee', with_id));
    END IF;
    RETURN shared;
END
$$;

-- As in 0021_callers.sql, but for keys and ids: what is resolved by a row keeps them.
CREATE OR REPLACE FUNCTION link_callers(old_id TEXT, new_id TEXT) RETURNS JSONB LANGUAGE plpgsql
SET search_path = public, pg_temp AS $$
DECLARE
    target TEXT;
    names TEXT[];
    moved_jobs INTEGER;
    moved_corpora INTEGER;
BEGIN
    PERFORM set_config('lock_timeout', '2s', true);
    LOCK TABLE corpora, jobs, callers IN SHARE ROW EXCLUSIVE MODE;
    target := root_of(old_id);
    IF new_id = target THEN
        RAISE EXCEPTION '% is the root of % already', new_id, old_id;
    ELSIF root_of(new_id) NOT IN (new_id, target) THEN
        RAISE EXCEPTION '% is an alias of % already', new_id, root_of(new_id);
    ELSIF EXISTS (SELECT FROM callers WHERE caller_id = new_id AND blocked_at IS NOT NULL) THEN
        RAISE EXCEPTION '% is blocked: unblock it first, or block %', new_id, target;
    ELSIF EXISTS (SELECT FROM jobs WHERE caller_id = new_id AND status NOT IN ('done', 'failed')) THEN
        RAISE EXCEPTION '% has jobs that have not ended: wait for them, or cancel them', new_id;
    END IF;
    SELECT array_agg(a.name ORDER BY a.name) INTO names
    FROM corpus_names AS a JOIN corpus_names AS b ON b.name = a.name
    WHERE a.owner = new_id AND b.owner = target;
    IF names IS NOT NULL THEN
        RAISE EXCEPTION 'both % and % have a corpus named %', target, new_id, array_to_string(names, ', ');
    END IF;
    UPDATE corpora SET caller_id = target WHERE caller_id = new_id;
    GET DIAGNOSTICS moved_corpora = ROW_COUNT;
    UPDATE corpus_names SET owner = target WHERE owner = new_id;
    UPDATE jobs SET caller_id = target WHERE caller_id = new_id;
    GET DIAGNOSTICS moved_jobs = ROW_COUNT;
    UPDATE outbox SET caller_id = target WHERE caller_id = new_id;
    UPDATE earlier_starts SET caller_id = target WHERE caller_id = new_id;
    INSERT INTO idempotency_keys (caller_id, key, body_sha256, answer, created_at)
    SELECT target, key, body_sha256, answer, created_at FROM idempotency_keys WHERE caller_id = new_id
    ON CONFLICT DO NOTHING;
    DELETE FROM idempotency_keys WHERE caller_id = new_id;
    INSERT INTO caller_chunks (caller_id, day, chunks)
    SELECT target, day, chunks FROM caller_chunks WHERE caller_id = new_id
    ON CONFLICT (caller_id, day) DO UPDATE SET chunks = caller_chunks.chunks + excluded.chunks;
    DELETE FROM caller_chunks WHERE caller_id = new_id;
    INSERT INTO callers (caller_id, root) VALUES (target, target) ON CONFLICT DO NOTHING;
    INSERT INTO callers (caller_id, root, linked_at) VALUES (new_id, target, now())
    ON CONFLICT (caller_id) DO UPDATE
        SET root = target, linked_at = now(), version = callers.version + 1, mirrored = false;
    UPDATE callers SET root = target, version = version + 1, mirrored = false
    WHERE root = new_id AND caller_id <> new_id;
    RETURN jsonb_build_object('root', target, 'jobs', moved_jobs, 'corpora', moved_corpora);
END
$$;

-- Of each publish, in the row that it changes anyway: documents with chunks, bytes of their chunks' texts, and when.
ALTER TABLE corpus_totals
    ADD COLUMN documents BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN indexed_at TIMESTAMPTZ;

-- Count what the release before wrote, in at most `corpora` corpora with at most `most` chunks together, and return how many
-- were counted. One snapshot has both the rows and what is counted of them already. Functions of the release before have
-- ended an hour after the migration: a canary takes half an hour at most.
CREATE FUNCTION count_old_corpora(corpora INTEGER, most BIGINT) RETURNS INTEGER LANGUAGE sql SECURITY DEFINER
SET search_path = public, pg_temp
BEGIN ATOMIC
    WITH uncounted AS (
        SELECT n.corpus, coalesce((SELECT sum(t.chunks) FROM corpus_totals AS t WHERE t.corpus = n.corpus), 0) AS chunks
        FROM corpus_names AS n
        WHERE n.documents_before IS NULL AND n.since <= now() - interval '1 hour'
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

-- Have the sweeper count a corpus again, whose figures are not those of its documents.
CREATE FUNCTION recount_corpus(of_corpus INTEGER) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = public, pg_temp
BEGIN ATOMIC
    UPDATE corpus_names SET documents_before = NULL, bytes_before = NULL WHERE corpus = of_corpus;
END;

GRANT SELECT ON corpus_names, corpus_grants TO indexmill_embedding;
REVOKE ALL ON FUNCTION corpus_key_of(TEXT, TEXT, INTEGER), owner_of_corpus, key_of_corpus, make_corpus, rename_corpus,
    audit_corpus, grants_follow_alias, share_corpus, unshare_corpus, recount_corpus,
    count_old_corpora FROM PUBLIC;
GRANT EXECUTE ON FUNCTION corpus_key_of(TEXT, TEXT), corpus_key_of(TEXT, TEXT, INTEGER), key_of_corpus
    TO indexmill_orchestrator, indexmill_embedding;
GRANT EXECUTE ON FUNCTION count_old_corpora TO indexmill_orchestrator;
GRANT EXECUTE ON FUNCTION make_corpus, rename_corpus, share_corpus, unshare_corpus, recount_corpus
    TO indexmill_embedding;

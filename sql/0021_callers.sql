-- Callers: whom the ids of keys and Membership's ids belong to, who is blocked, and maintenance. The sweeper copies all of it
-- into the state table, where authorizers and functions read it without Postgres: a row with mirrored = false is still to
-- be copied, and of two copies the one with the higher version counts.

CREATE TABLE callers (
    caller_id TEXT PRIMARY KEY,
    -- The caller whose jobs and corpora these are: itself, or the one that it is an alias of. An alias has no aliases.
    root TEXT NOT NULL,
    first_seen TIMESTAMPTZ NOT NULL DEFAULT now(),
    linked_at TIMESTAMPTZ,
    blocked_at TIMESTAMPTZ,
    blocked_reason TEXT,
    unblocked_at TIMESTAMPTZ,
    version BIGINT NOT NULL DEFAULT 1,
    mirrored BOOLEAN NOT NULL DEFAULT false,
    CHECK ((blocked_at IS NULL) = (blocked_reason IS NULL))
);
CREATE INDEX callers_unmirrored ON callers (caller_id) WHERE NOT mirrored;
CREATE INDEX callers_aliases ON callers (root) WHERE root <> caller_id;

CREATE TABLE maintenance (
    one BOOLEAN PRIMARY KEY DEFAULT true CHECK (one),
    -- What callers read while nothing is accepted; null while it is off.
    message TEXT,
    changed_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    version BIGINT NOT NULL DEFAULT 1,
    mirrored BOOLEAN NOT NULL DEFAULT false
);
INSERT INTO maintenance DEFAULT VALUES;

-- Whoever has a job or a document has a corpus: its first one makes the caller known, in whichever service.
CREATE FUNCTION caller_of_corpus() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO callers (caller_id, root) VALUES (NEW.caller_id, NEW.caller_id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER caller AFTER INSERT ON corpora FOR EACH ROW EXECUTE FUNCTION caller_of_corpus();
INSERT INTO callers (caller_id, root) SELECT DISTINCT caller_id, caller_id FROM corpora ON CONFLICT DO NOTHING;

-- As contracts/identity.py derives them.
CREATE FUNCTION corpus_key_of(caller TEXT, name TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE
RETURN left(encode(sha256(convert_to(caller, 'UTF8') || '\x00'::bytea || convert_to(name, 'UTF8')), 'hex'), 32);
CREATE FUNCTION document_id_of(key TEXT, url TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE
RETURN encode(sha256(convert_to(key, 'UTF8') || '\x00'::bytea || convert_to(url, 'UTF8')), 'hex');

-- A corpus that all callers share keeps its key.
CREATE FUNCTION key_after_link(key TEXT, name TEXT, alias TEXT, root TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE
RETURN CASE WHEN key = corpus_key_of(alias, name) THEN corpus_key_of(root, name) ELSE key END;

CREATE FUNCTION root_of(id TEXT) RETURNS TEXT LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce((SELECT root FROM callers WHERE caller_id = id), id);
END;

-- Make new_id an alias of old_id's root and give the root what new_id has. The locks wait for submissions under way; those
-- that come later wait, and then see the alias. Chunks keep the ids that they have: the next version of their document
-- replaces them. Run again, it moves what new_id got meanwhile.
CREATE FUNCTION link_callers(old_id TEXT, new_id TEXT) RETURNS JSONB LANGUAGE plpgsql
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
    FROM corpora AS a JOIN corpora AS b ON b.name = a.name
    WHERE a.caller_id = new_id AND b.caller_id = target;
    IF names IS NOT NULL THEN
        RAISE EXCEPTION 'both % and % have a corpus named %', target, new_id, array_to_string(names, ', ');
    END IF;
    UPDATE documents SET document_id = document_id_of(corpus_key_of(target, c.name), documents.url)
    FROM corpora AS c WHERE c.id = documents.corpus_id AND c.corpus_key = corpus_key_of(new_id, c.name)
        AND documents.document_id = document_id_of(c.corpus_key, documents.url);
    UPDATE corpora SET caller_id = target, corpus_key = key_after_link(corpus_key, name, new_id, target)
    WHERE caller_id = new_id;
    GET DIAGNOSTICS moved_corpora = ROW_COUNT;
    UPDATE jobs SET caller_id = target, corpus_key = key_after_link(corpus_key, corpus_name, new_id, target),
        document_id = document_id_of(key_after_link(corpus_key, corpus_name, new_id, target), canonical_url)
    WHERE caller_id = new_id;
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

CREATE FUNCTION block_caller(id TEXT, reason TEXT) RETURNS TEXT LANGUAGE sql
SET search_path = public, pg_temp
BEGIN ATOMIC
    INSERT INTO callers (caller_id, root, blocked_at, blocked_reason)
    VALUES (root_of(id), root_of(id), now(), reason)
    ON CONFLICT (caller_id) DO UPDATE SET blocked_at = now(), blocked_reason = excluded.blocked_reason,
        unblocked_at = NULL, version = callers.version + 1, mirrored = false
    RETURNING caller_id;
END;

CREATE FUNCTION unblock_caller(id TEXT) RETURNS TEXT LANGUAGE sql
SET search_path = public, pg_temp
BEGIN ATOMIC
    UPDATE callers SET blocked_at = NULL, blocked_reason = NULL, unblocked_at = now(), version = version + 1,
        mirrored = false
    WHERE caller_id = root_of(id) AND blocked_at IS NOT NULL
    RETURNING caller_id;
END;

CREATE FUNCTION set_maintenance(text TEXT) RETURNS void LANGUAGE sql
SET search_path = public, pg_temp
BEGIN ATOMIC
    UPDATE maintenance SET message = text, changed_at = now(), version = version + 1, mirrored = false;
END;

-- What an internal caller's direct write needs of the job that it is for: the embedding service reads no job otherwise.
CREATE FUNCTION target_of_job(of_job TEXT) RETURNS TABLE (
    caller_id TEXT, corpus_name TEXT, corpus_key TEXT, document_id TEXT, url TEXT, status TEXT, attempt INTEGER,
    generation BIGINT
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
BEGIN ATOMIC
    SELECT j.caller_id, j.corpus_name, j.corpus_key, j.document_id, j.canonical_url, j.status, j.attempt, j.generation
    FROM jobs AS j WHERE j.id = of_job;
END;

REVOKE ALL ON FUNCTION caller_of_corpus, corpus_key_of, document_id_of, root_of, link_callers, block_caller,
    unblock_caller, set_maintenance, target_of_job FROM PUBLIC;
GRANT EXECUTE ON FUNCTION root_of TO indexmill_orchestrator;
GRANT EXECUTE ON FUNCTION target_of_job TO indexmill_embedding;

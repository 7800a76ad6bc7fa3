-- Who may do what: each service's login is a member of its group. Only the Orchestrator writes the state of a job.
--
-- Groups belong to the whole server: another database on it may have made them, or be making them right now.

DO $$
DECLARE name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['indexmill_orchestrator', 'indexmill_embedding'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END LOOP;
END
$$;

GRANT USAGE ON SCHEMA public TO indexmill_orchestrator, indexmill_embedding;

-- The Orchestrator: every table that is not the index's, also those of later migrations.
DO $$
DECLARE name TEXT;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN (
        'schema_migrations', 'job_history', 'spaces', 'chunks', 'memberships', 'vectors', 'postings',
        'corpus_totals'
    ) LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO indexmill_orchestrator', name);
    END LOOP;
END
$$;
ALTER DEFAULT PRIVILEGES IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO indexmill_orchestrator;
GRANT SELECT, INSERT ON job_history TO indexmill_orchestrator;
GRANT SELECT ON spaces, chunks, memberships, corpus_totals TO indexmill_orchestrator;
GRANT USAGE ON SEQUENCE generation_seq TO indexmill_orchestrator;

-- Embedding: the index and its catalogue, and nothing of jobs.
GRANT SELECT, INSERT ON corpora TO indexmill_embedding;
GRANT SELECT, INSERT, UPDATE ON spaces, documents, corpus_totals TO indexmill_embedding;
GRANT SELECT, INSERT, UPDATE, DELETE ON chunks, memberships, vectors, postings TO indexmill_embedding;
GRANT USAGE ON SEQUENCE generation_seq, chunk_blocks TO indexmill_embedding;
GRANT EXECUTE ON FUNCTION build_vector_index TO indexmill_embedding;

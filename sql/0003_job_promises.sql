-- What the promises to a job need: tries and waits, priorities and admission, dependencies, replays, idempotent
-- submits, pauses and incidents, and a history that nobody can change unseen.

ALTER TABLE jobs
    ADD COLUMN job_type TEXT NOT NULL DEFAULT 'index',
    ADD COLUMN priority SMALLINT NOT NULL DEFAULT 50 CHECK (priority BETWEEN 0 AND 100),
    ADD COLUMN tier TEXT NOT NULL DEFAULT 'free',
    ADD COLUMN forced BOOLEAN NOT NULL DEFAULT false,
    ADD COLUMN payload_digest TEXT,
    ADD COLUMN replay_of TEXT,
    -- Of the newest embed message: what a later cancel, failure or retry fences out.
    ADD COLUMN generation BIGINT,
    -- What went into the job's newest result, so that a replay can be compared with it.
    ADD COLUMN raw_ref JSONB,
    ADD COLUMN determinism JSONB,
    -- Tries of the current stage, as its worker told; a wait that is longer than a moment says until when.
    ADD COLUMN tries INTEGER NOT NULL DEFAULT 0,
    ADD COLUMN next_retry_at TIMESTAMPTZ,
    ADD COLUMN retry_cause TEXT,
    -- `pending` means accepted and not yet dispatched; what it waits for.
    ADD COLUMN admitted_at TIMESTAMPTZ,
    ADD COLUMN next_eligible_at TIMESTAMPTZ,
    ADD COLUMN blocked_by TEXT,
    ADD COLUMN expected_by TIMESTAMPTZ,
    ADD COLUMN ended_at TIMESTAMPTZ;

UPDATE jobs SET admitted_at = created_at WHERE status <> 'pending';
UPDATE jobs SET ended_at = updated_at WHERE status IN ('done', 'failed');

-- One job at a time works on a document, unless the caller insists.
CREATE UNIQUE INDEX jobs_in_flight ON jobs (document_id)
    WHERE status NOT IN ('done', 'failed') AND NOT forced;
CREATE INDEX jobs_pending ON jobs (caller_id, created_at) WHERE status = 'pending';
CREATE INDEX jobs_active ON jobs (caller_id) WHERE status IN ('scraping', 'chunking', 'embedding');
CREATE INDEX jobs_admitted ON jobs (caller_id, admitted_at);
CREATE INDEX jobs_batch ON jobs (batch_id) WHERE batch_id IS NOT NULL;

-- An edge points from a job to an older one that must be done first, so no circle can be made.
CREATE TABLE job_dependencies (
    job_id TEXT NOT NULL,
    depends_on TEXT NOT NULL,
    PRIMARY KEY (job_id, depends_on),
    CHECK (job_id <> depends_on)
);
CREATE INDEX job_dependencies_back ON job_dependencies (depends_on);

-- The same key within a day answers as it did the first time.
CREATE TABLE idempotency_keys (
    caller_id TEXT NOT NULL,
    key TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    answer JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (caller_id, key)
);

-- A stage (or '*') that an operator holds back. Only the sweeper turns the switch, and it reads this.
CREATE TABLE pauses (
    stage TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    paused_by TEXT NOT NULL,
    paused_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE incidents (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail JSONB,
    opened_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    closed_at TIMESTAMPTZ
);
CREATE UNIQUE INDEX incidents_open ON incidents (kind, subject) WHERE closed_at IS NULL;

-- A message carries the caller it is for, so that one caller's backlog does not hold back another's.
-- A message of a job that is not admitted yet is held: claimed until infinity.
ALTER TABLE outbox ADD COLUMN caller_id TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ALTER COLUMN caller_id DROP DEFAULT;

ALTER TABLE job_history
    ADD COLUMN tries INTEGER,
    ADD COLUMN worker TEXT,
    ADD COLUMN elapsed_ms INTEGER,
    ADD COLUMN job_type TEXT,
    ADD COLUMN payload_digest TEXT,
    ADD COLUMN prev_hash TEXT NOT NULL DEFAULT '',
    ADD COLUMN hash TEXT NOT NULL DEFAULT '';

-- Everything a row says, and the row before it: change one and every later hash is wrong.
CREATE FUNCTION job_history_hash(h job_history) RETURNS TEXT LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(jsonb_build_array(
        h.prev_hash, h.job_id, h.attempt, h.from_status, h.to_status,
        to_char(h.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
        h.cause, h.detail, h.tries, h.worker, h.elapsed_ms, h.job_type, h.payload_digest
    )::text, 'UTF8')), 'hex')
$$;

CREATE FUNCTION job_history_chain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT hash INTO NEW.prev_hash FROM job_history WHERE job_id = NEW.job_id ORDER BY seq DESC LIMIT 1;
    NEW.prev_hash := coalesce(NEW.prev_hash, '');
    NEW.hash := job_history_hash(NEW);
    RETURN NEW;
END
$$;

DO $$
DECLARE one job_history; previous TEXT;
BEGIN
    FOR one IN SELECT * FROM job_history ORDER BY seq LOOP
        SELECT hash INTO previous FROM job_history
        WHERE job_id = one.job_id AND seq < one.seq ORDER BY seq DESC LIMIT 1;
        one.prev_hash := coalesce(previous, '');
        UPDATE job_history SET prev_hash = one.prev_hash, hash = job_history_hash(one) WHERE seq = one.seq;
    END LOOP;
END
$$;

CREATE FUNCTION job_history_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job_history is append-only';
END
$$;

CREATE TRIGGER chain BEFORE INSERT ON job_history FOR EACH ROW EXECUTE FUNCTION job_history_chain();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON job_history
    FOR EACH STATEMENT EXECUTE FUNCTION job_history_is_append_only();

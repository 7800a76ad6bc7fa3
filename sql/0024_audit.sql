-- Who did what: a row for each event, committed with the change that it tells of. Triggers write it, whichever
-- statement, function or release makes the change. Rows are added, never changed and never deleted. The sweeper writes
-- each of them into the log as well (docs/decisions/0031-the-audit.md).
CREATE TABLE audit_events (
    -- The transaction that wrote it: the order in which the sweeper reads. A transaction that is still open may have taken
    -- a lower seq already.
    xact XID8 NOT NULL DEFAULT pg_current_xact_id(),
    seq BIGINT GENERATED ALWAYS AS IDENTITY,
    at TIMESTAMPTZ NOT NULL DEFAULT now(),
    event TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    caller_type TEXT NOT NULL DEFAULT 'unknown',
    tier TEXT,
    fields JSONB NOT NULL,
    PRIMARY KEY (xact, seq)
);
CREATE INDEX audit_events_at ON audit_events USING brin (at) WITH (pages_per_range = 32, autosummarize = on);

-- The last event that the sweeper wrote into the log.
CREATE TABLE audit_logged (
    one BOOLEAN PRIMARY KEY DEFAULT true CHECK (one),
    xact XID8 NOT NULL DEFAULT '0',
    seq BIGINT NOT NULL DEFAULT 0
);
INSERT INTO audit_logged DEFAULT VALUES;

CREATE FUNCTION audit_events_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_events is append-only';
END
$$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_events
    FOR EACH STATEMENT EXECUTE FUNCTION audit_events_is_append_only();

-- By default the Orchestrator has every right to a new table.
REVOKE UPDATE, DELETE ON audit_events FROM indexmill_orchestrator;

-- As the gateway described the caller who submitted; and the internal caller who did that for another one.
ALTER TABLE jobs
    ADD COLUMN caller_type TEXT NOT NULL DEFAULT 'unknown',
    ADD COLUMN submitted_by TEXT;

CREATE FUNCTION audit_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_events (event, caller_id, caller_type, tier, fields)
    SELECT CASE
            WHEN NEW.to_status = 'done' THEN 'job_completed'
            WHEN NEW.to_status = 'failed' AND NEW.detail->>'code' = 'canceled' THEN 'job_canceled'
            WHEN NEW.to_status = 'failed' THEN 'job_failed'
            WHEN NEW.from_status = 'failed' THEN 'job_retried'
            WHEN replay_of IS NOT NULL THEN 'job_replayed'
            ELSE 'job_submitted'
        END, caller_id, caller_type, tier, jsonb_strip_nulls(jsonb_build_object(
            'job_id', NEW.job_id, 'attempt', NEW.attempt, 'request_id', NEW.request_id,
            'stage', coalesce(NEW.detail->>'stage',
                CASE WHEN NEW.to_status = 'done' THEN NEW.from_status WHEN NEW.from_status = 'failed' THEN resume_stage END),
            'code', NEW.detail->>'code', 'cause', NEW.detail->>'cause',
            -- What the caller gave as the reason. Other messages may quote the document.
            'reason', CASE WHEN NEW.detail->>'code' = 'canceled' THEN NEW.detail->>'message' END,
            'replay_of', CASE WHEN NEW.from_status IS NULL THEN replay_of END,
            'submitted_by', CASE WHEN NEW.from_status IS NULL THEN submitted_by END))
    FROM jobs WHERE id = NEW.job_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER audit AFTER INSERT ON job_history FOR EACH ROW
    WHEN (NEW.to_status IN ('done', 'failed') OR NEW.from_status IS NULL OR NEW.from_status = 'failed')
    EXECUTE FUNCTION audit_transition();

-- Acts of operators on callers (sql/0021_callers.sql), and aliases by claim.
CREATE FUNCTION audit_caller() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_events (event, caller_id, fields)
    SELECT TG_ARGV[0], NEW.caller_id, jsonb_strip_nulls(jsonb_build_object(
        'root', nullif(NEW.root, NEW.caller_id), 'reason', NEW.blocked_reason));
    RETURN NULL;
END
$$;
CREATE TRIGGER audit_new_alias AFTER INSERT ON callers FOR EACH ROW
    WHEN (NEW.root <> NEW.caller_id) EXECUTE FUNCTION audit_caller('caller_linked');
CREATE TRIGGER audit_alias AFTER UPDATE ON callers FOR EACH ROW
    WHEN (NEW.root <> OLD.root) EXECUTE FUNCTION audit_caller('caller_linked');
CREATE TRIGGER audit_new_block AFTER INSERT ON callers FOR EACH ROW
    WHEN (NEW.blocked_at IS NOT NULL) EXECUTE FUNCTION audit_caller('caller_blocked');
CREATE TRIGGER audit_block AFTER UPDATE ON callers FOR EACH ROW
    WHEN (NEW.blocked_at IS NOT NULL AND NEW.blocked_at IS DISTINCT FROM OLD.blocked_at)
    EXECUTE FUNCTION audit_caller('caller_blocked');
CREATE TRIGGER audit_unblock AFTER UPDATE ON callers FOR EACH ROW
    WHEN (NEW.blocked_at IS NULL AND OLD.blocked_at IS NOT NULL) EXECUTE FUNCTION audit_caller('caller_unblocked');

CREATE FUNCTION audit_maintenance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_events (event, caller_id, caller_type, fields)
    VALUES ('maintenance_changed', 'operator', 'operator', jsonb_build_object('on', NEW.message IS NOT NULL));
    RETURN NULL;
END
$$;
CREATE TRIGGER audit AFTER UPDATE ON maintenance FOR EACH ROW
    WHEN (NEW.message IS DISTINCT FROM OLD.message) EXECUTE FUNCTION audit_maintenance();

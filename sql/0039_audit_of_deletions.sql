-- As in 0024, with the type of a job that is not the usual one: the events of a deletion say that they are.
CREATE OR REPLACE FUNCTION audit_transition() RETURNS trigger LANGUAGE plpgsql AS $$
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
            'submitted_by', CASE WHEN NEW.from_status IS NULL THEN submitted_by END,
            'job_type', nullif(NEW.job_type, 'index')))
    FROM jobs WHERE id = NEW.job_id;
    RETURN NULL;
END
$$;

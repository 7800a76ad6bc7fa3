-- Whether a message waits for its job's admission. The release before says that by claimed_until = 'infinity', and both
-- run at once during a deployment: until no release reads it so any more, a trigger derives the column from it. A
-- generated column would rewrite the table, payloads included, under a lock that stops the service.
ALTER TABLE outbox ADD COLUMN awaiting_admission BOOLEAN NOT NULL DEFAULT false;

UPDATE outbox SET awaiting_admission = true
WHERE sent_at IS NULL AND parked_at IS NULL AND claimed_until = 'infinity';

CREATE FUNCTION outbox_awaiting_admission() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.awaiting_admission := NEW.claimed_until = 'infinity';
    RETURN NEW;
END
$$;

CREATE TRIGGER awaiting_admission BEFORE INSERT OR UPDATE OF claimed_until ON outbox
    FOR EACH ROW EXECUTE FUNCTION outbox_awaiting_admission();

-- Whether a message waits for its job's admission. The release before says that by claimed_until = 'infinity', and both
-- run at once during a deployment: until no release reads it so any more, the column is derived from it.
ALTER TABLE outbox ADD COLUMN awaiting_admission BOOLEAN NOT NULL
    GENERATED ALWAYS AS (claimed_until = TIMESTAMPTZ 'infinity') STORED;

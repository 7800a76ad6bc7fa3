-- What the sweeper remembers from one tick to the next, how often a message was sent again, and what became of
-- messages that no consumer could finish.

-- How many messages of a stage were missing when they were last counted: two ticks must agree.
CREATE TABLE sweep_state (
    stage TEXT PRIMARY KEY,
    missing INTEGER NOT NULL,
    counted_at TIMESTAMPTZ NOT NULL
);

ALTER TABLE outbox ADD COLUMN rescues INTEGER NOT NULL DEFAULT 0;

-- The clean-up looks for old rows; rows come in the order of time, so a few bytes per block find them.
CREATE INDEX outbox_created ON outbox USING brin (created_at) WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX inbox_received ON inbox USING brin (received_at) WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX idempotency_keys_created ON idempotency_keys USING brin (created_at)
    WITH (pages_per_range = 32, autosummarize = on);

-- `source_id` is the queue's own id of the message: a second delivery of the same letter changes nothing.
ALTER TABLE dead_letters
    ADD COLUMN cause TEXT NOT NULL DEFAULT 'unknown',
    ADD COLUMN stage TEXT,
    ADD COLUMN attempt INTEGER,
    ADD COLUMN message_id TEXT,
    ADD COLUMN body_ref JSONB,
    ADD COLUMN attributes JSONB,
    ADD COLUMN source_id TEXT,
    ADD CONSTRAINT dead_letters_once UNIQUE (queue, source_id);
ALTER TABLE dead_letters ALTER COLUMN cause DROP DEFAULT;
CREATE INDEX dead_letters_job ON dead_letters (job_id) WHERE job_id IS NOT NULL;

-- An index can be made by the owner of its table only, which no function is; this one may be called.
CREATE FUNCTION build_vector_index(of_space INTEGER, lists INTEGER, over_rows BIGINT) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE width INTEGER;
BEGIN
    SELECT dimension INTO STRICT width FROM spaces WHERE id = of_space;
    EXECUTE format('DROP INDEX IF EXISTS vectors_space_%s', of_space);
    EXECUTE format(
        'CREATE INDEX vectors_space_%s ON vectors USING ivfflat ((embedding::halfvec(%s)) halfvec_ip_ops)'
        ' WITH (lists = %s) WHERE space = %s', of_space, width, lists, of_space);
    UPDATE spaces SET indexed_rows = over_rows WHERE id = of_space;
END
$$;
REVOKE ALL ON FUNCTION build_vector_index FROM PUBLIC;

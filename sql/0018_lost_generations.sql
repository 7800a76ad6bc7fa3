-- Generations that were issued after the point in time to which the database was restored. Their jobs are lost with that
-- database, but their messages are still in the queues: what they publish would belong to no job. `migrate.py --after-restore`
-- writes a row for each restore, and publishing refuses what is in one.
CREATE TABLE lost_generations (
    after BIGINT NOT NULL,
    upto BIGINT NOT NULL CHECK (upto > after),
    restored_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
GRANT SELECT ON lost_generations TO indexmill_embedding;

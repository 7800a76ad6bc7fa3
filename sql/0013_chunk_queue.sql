-- Chunking takes its work from a queue, so it can be paused, and there is no incident of its own any more.

ALTER TABLE pauses DROP CONSTRAINT only_scraping_embedding_or_all_can_be_paused;
ALTER TABLE pauses ADD CONSTRAINT only_stages_or_all_can_be_paused
    CHECK (stage IN ('*', 'scraping', 'chunking', 'embedding'));

UPDATE incidents SET closed_at = now() WHERE kind = 'stage_away' AND closed_at IS NULL;

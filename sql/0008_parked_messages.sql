-- The sweeper counts them each minute; there are hardly ever any.
CREATE INDEX outbox_parked ON outbox (parked_at) WHERE parked_at IS NOT NULL;

-- Old rows are found by a tree. A summary per block only ever grows: where old rows were deleted and new ones took their
-- room, it says "perhaps" for every block there is, and each minute's look for old rows read a week of messages.

CREATE INDEX outbox_age ON outbox (created_at);
CREATE INDEX inbox_age ON inbox (received_at);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
DROP INDEX outbox_created;
DROP INDEX inbox_received;
DROP INDEX idempotency_keys_created;

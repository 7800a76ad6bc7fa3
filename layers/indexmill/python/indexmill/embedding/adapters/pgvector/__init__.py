"""Vector index in Postgres."""

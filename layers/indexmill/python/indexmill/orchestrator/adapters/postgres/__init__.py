"""The Orchestrator's tables in Postgres."""

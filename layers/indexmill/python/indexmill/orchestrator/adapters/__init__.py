"""Technology that the Orchestrator's acts use beside Postgres."""

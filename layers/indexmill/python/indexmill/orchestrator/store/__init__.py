"""Rows of the Orchestrator: row operations by act, each one named statement of the .sql file beside it."""

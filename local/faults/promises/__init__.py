"""Executable guarantees: each check reads the state after a run and returns the violations."""

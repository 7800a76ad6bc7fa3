"""Executable checks of the invariants: each check reads the state after a run and returns the violations."""

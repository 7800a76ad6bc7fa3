"""Executable promises: each check reads what is left of a run and returns what was not kept."""

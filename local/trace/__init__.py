"""Trace of one job through the pipeline, from the database and the functions' logs."""

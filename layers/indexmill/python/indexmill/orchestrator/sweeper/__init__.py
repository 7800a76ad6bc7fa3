"""Sweeper: what each minute's tick does for jobs and stages."""

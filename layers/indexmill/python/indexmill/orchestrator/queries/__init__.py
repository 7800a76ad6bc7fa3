"""Reads that callers ask for."""

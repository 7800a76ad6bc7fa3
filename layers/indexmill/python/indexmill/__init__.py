"""Indexmill: turn URLs and documents into a searchable corpus."""

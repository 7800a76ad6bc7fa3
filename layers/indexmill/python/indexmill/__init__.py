"""Indexmill: turn URLs and documents into a searchable corpus."""

VERSION = "0.1.0"

"""The repository's own tools: what the Makefile runs."""

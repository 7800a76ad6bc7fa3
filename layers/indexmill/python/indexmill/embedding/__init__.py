"""Embedding service: embeds chunks, stores them, and searches them."""

"""Extraction: the bytes of a page to Markdown."""

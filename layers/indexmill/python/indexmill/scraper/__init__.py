"""Fetches documents and turns them into Markdown."""

"""Scraper service: fetches documents and converts them to Markdown."""

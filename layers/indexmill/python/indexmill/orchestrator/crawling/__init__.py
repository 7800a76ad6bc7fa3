"""Crawls: batches that grow with the links of their pages."""

"""Chunking service: splits text into ordered, token-sized chunks. Stateless."""

"""Splits text into ordered, token-sized chunks. Stateless."""

"""Embeds chunks, keeps them, and searches them."""

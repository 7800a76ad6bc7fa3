"""Checks on input from outside: URLs, addresses, stream tokens."""

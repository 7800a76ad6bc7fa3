"""Authentication of callers: API keys checked with Membership."""

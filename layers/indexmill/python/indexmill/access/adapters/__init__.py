"""Technology behind Access's ports."""

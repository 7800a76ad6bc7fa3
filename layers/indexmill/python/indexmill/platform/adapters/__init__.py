"""Technology behind the platform's ports."""

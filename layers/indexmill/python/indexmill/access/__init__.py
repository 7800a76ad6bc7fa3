"""Who is calling: API keys checked with Membership."""

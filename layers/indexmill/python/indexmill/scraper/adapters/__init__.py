"""Technology behind the Scraper's ports."""

"""The built-in web site: pages to index, and what becomes of each."""

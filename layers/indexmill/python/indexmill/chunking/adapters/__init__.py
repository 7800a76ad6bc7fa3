"""Technology behind Chunking's ports."""

"""Technology behind Embedding's ports."""

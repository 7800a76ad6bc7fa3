"""The `indexmill` command."""

"""Jobs: their rows, states and texts, and the port of their store."""

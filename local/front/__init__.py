"""REST front: emulates API Gateway between a client's socket and a function."""

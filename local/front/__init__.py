"""The REST front: what API Gateway does between a client's socket and a function."""

"""What functions and the host count, in one place, as Prometheus reads it."""

"""Metrics of functions and host, in Prometheus' text format."""

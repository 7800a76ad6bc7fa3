"""In-memory twins of every port, and builders for tests."""

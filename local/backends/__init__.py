"""Processes beside the functions: the database, the AWS endpoint, and stand-ins for external services."""

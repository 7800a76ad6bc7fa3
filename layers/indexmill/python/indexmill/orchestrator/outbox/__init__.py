"""Outbox: committed messages, and their way to the queues."""

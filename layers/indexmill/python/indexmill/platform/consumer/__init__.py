"""Consumers of SQS: batch handler, deliveries, delivery records, report of results."""

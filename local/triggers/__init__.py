"""Triggers: SQS event sources and schedules."""

"""Adapters of the Orchestrator on AWS services."""

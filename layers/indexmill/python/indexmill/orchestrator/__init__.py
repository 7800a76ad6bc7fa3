"""Orchestrator service: owns the jobs and the order of their stages."""

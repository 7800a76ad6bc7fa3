"""Technology behind the Orchestrator's ports."""

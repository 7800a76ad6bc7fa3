"""HTTP endpoints of the Orchestrator."""

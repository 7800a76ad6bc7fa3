"""One module per stage: its message, and what its result says about a job."""

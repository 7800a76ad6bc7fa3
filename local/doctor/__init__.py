"""What may be missing or wrong on a machine, and how to mend it."""

"""AWS adapters of the platform's ports."""

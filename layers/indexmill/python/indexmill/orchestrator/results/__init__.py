"""Results of stages: decided, applied, and what cannot be delivered."""

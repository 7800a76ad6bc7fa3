"""Job actions: cancel, retry, replay."""

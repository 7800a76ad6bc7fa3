"""Deployment of the built template into an AWS emulator that has its own Lambda, queues and gateway."""

"""Deploys the built template into an AWS emulator, with that emulator's own Lambda, queues and gateway."""

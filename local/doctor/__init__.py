"""Checks of a machine for missing or broken prerequisites, with remedies."""

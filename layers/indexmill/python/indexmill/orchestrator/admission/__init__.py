"""Admission: order of pending jobs, quotas, dependencies, and forecasts."""

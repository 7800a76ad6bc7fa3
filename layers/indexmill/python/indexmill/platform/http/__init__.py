"""HTTP side of every service: app, request guard, error envelope, Lambda handler."""

"""HTTP side of every service: app factory, error envelope, strict JSON, Lambda handler."""

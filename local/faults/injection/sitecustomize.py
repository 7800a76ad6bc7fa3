"""Startup hook of every function's process while calls are recorded or faults are enabled."""

from local.faults import aws_calls, worker

# A call that a fault prevents is one that the function may make.
worker.install()
aws_calls.install()

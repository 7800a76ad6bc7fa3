"""Startup hook of every function's process while faults are enabled."""

from local.faults.worker import install

install()

"""Run at the start of every function's process when faults are switched on."""

from local.faults.worker import install

install()

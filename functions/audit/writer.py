"""Copies the audit lines of the other functions' logs into its own log group, which keeps them for longer."""

from indexmill.audit.wiring import build_writer
from indexmill.platform.observability import entry_point

handler = entry_point(build_writer())

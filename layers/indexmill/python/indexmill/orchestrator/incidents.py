"""Incidents: conditions for an operator, recorded and logged when they begin and when they end."""

from __future__ import annotations

from collections.abc import Mapping

from indexmill.orchestrator.ports_sweep import SweepStore
from indexmill.platform.observability import Observability


def tell_incidents(
    store: SweepStore, observability: Observability, kind: str, current: Mapping[str, Mapping[str, object]]
) -> None:
    """Make `current` (detail by subject) the open incidents of `kind`, and log what that changes.

    Raises TransientError(database_unavailable).
    """
    opened, closed = store.incidents(kind, current)
    for subject in opened:
        observability.log.warning("incident.opened", extra={"kind": kind, "subject": subject})
    for subject in closed:
        observability.log.info("incident.closed", extra={"kind": kind, "subject": subject})

"""Let pending jobs start, inside the transaction that submits or ends others."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.orchestrator.adapters import admission_sql as sql
from indexmill.orchestrator.admission import Limits
from indexmill.orchestrator.pipeline import FIRST
from indexmill.orchestrator.ports import OutboxRow
from indexmill.platform.adapters.postgres import Connection


def admit(connection: Connection, limits: Limits, callers: Sequence[str]) -> list[OutboxRow]:
    """Admit what may start of `callers` and return the messages to send, which count as claimed by us."""
    parameters = {"callers": list(callers), "limit": limits.per_caller, "first": FIRST}
    return [OutboxRow(*row) for row in connection.execute(sql.ADMIT, parameters).fetchall()]

"""Aliases that authorizers deduce from Membership's claims, recorded once."""

from __future__ import annotations

from dataclasses import dataclass, field

from indexmill.contracts.identity import CallerContext
from indexmill.orchestrator.store.jobs import JobStore


@dataclass(slots=True)
class RecordAlias:
    """Makes an alias durable; the sweeper copies it to where the authorizers read."""

    store: JobStore
    _recorded: set[str] = field(default_factory=set)

    def __call__(self, ctx: CallerContext) -> None:
        """Record the caller's alias when this process has not. Raises TransientError."""
        if not ctx.alias or ctx.alias in self._recorded:
            return
        self.store.transaction(lambda tx: tx.add_alias(ctx.alias, ctx.caller_id))
        self._recorded.add(ctx.alias)

"""Callers across the rotation of keys: whose jobs and corpora a valid key gives access to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from indexmill.contracts.identity import CallerContext
from indexmill.platform.aws.state_table import StateTable, StoreUnavailable
from indexmill.platform.observability import Observability
from indexmill.platform.time import SystemClock

_MOST_REMEMBERED: Final = 10_000


class Roots:
    """Items "caller#<id>" {root} of the state table: the sweeper's copy of the table `callers`."""

    def __init__(self, table: str, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = StateTable(table, SystemClock(), dynamodb, quick=True)

    def find(self, ids: Collection[str]) -> Mapping[str, str]:
        """Return the root of each id that is known, by one request. Raises StoreUnavailable."""
        found = self._table.read([f"caller#{each}" for each in ids], consistent=False)
        return {key.removeprefix("caller#"): str(item["root"]) for key, item in found.items()}


@dataclass(slots=True)
class Identify:
    """Validates a key and replaces the caller's id by its root.

    An id of Membership's that is not known yet belongs to the caller that was known by the key's hash: so
    jobs and corpora stay when Membership begins to report ids. The Orchestrator records it.
    """

    validate: Callable[[str], CallerContext]
    roots: Roots
    observability: Observability
    _last: dict[str, str] = field(default_factory=dict)
    """Roots that this environment knew last, by id."""

    def __call__(self, api_key: str) -> CallerContext:
        """Return the caller of `api_key`. Raises what `validate` raises, and nothing for the state table."""
        ctx = self.validate(api_key)
        root = self._root(ctx)
        return ctx if root == ctx.caller_id else replace(ctx, caller_id=root, alias=ctx.caller_id)

    def _root(self, ctx: CallerContext) -> str:
        ids = list(dict.fromkeys((ctx.caller_id, ctx.key_id)))
        try:
            known = self.roots.find(ids)
        except StoreUnavailable:
            # No caller is refused for that: most callers have one id only.
            self.observability.count("caller_roots_unavailable_total")
            return self._last.get(ctx.caller_id, ctx.caller_id)
        root = next((known[each] for each in ids if each in known), ctx.caller_id)
        if len(self._last) >= _MOST_REMEMBERED:
            self._last.clear()
        self._last[ctx.caller_id] = root
        return root

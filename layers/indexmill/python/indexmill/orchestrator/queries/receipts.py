"""Receipts: sums of what jobs spent, with their price."""

from __future__ import annotations

from typing import Any, Final

from indexmill.contracts.cost import Prices, Receipt, StageReceipt
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.pipeline import ORDER
from indexmill.orchestrator.store.jobs import JobsTx
from indexmill.orchestrator.store.queries import JobFilter, StageTotals

_COST: Final = (
    *("gb_s", "invocations", "api_requests", "sqs_requests", "s3_reads", "s3_writes", "dynamodb_requests"),
)
_FACTS: Final = (
    *("chunks", "chunks_embedded", "chunks_removed", "tokens", "tokens_embedded", "bytes_fetched"),
    "bytes_stored",
)
MOST_JOBS: Final = 50_000
"""About a second of work for the database."""
_DIGITS: Final = 6


def read_receipt(tx: JobsTx, wanted: JobFilter, prices: Prices) -> Receipt:
    """Return the receipt of the jobs that match; raises CallerError(validation_error) for too many."""
    found = tx.receipt(wanted, MOST_JOBS + 1)
    (whole,) = [each for each in found if each.stage is None]
    if whole.jobs > MOST_JOBS:
        raise CallerError(
            ErrorCode.VALIDATION_ERROR,
            f"More than {MOST_JOBS:,} jobs match; ask for fewer by created_after and created_before.",
            field="query.receipt",
        )
    stages = sorted((each for each in found if each.stage), key=lambda each: ORDER.get(each.stage or "", -1))
    facts: dict[str, Any] = {name: _known(whole, getattr(whole.spent, name)) for name in _FACTS}
    return Receipt(
        jobs=whole.jobs,
        unknown_jobs=whole.unknown_jobs,
        chunks_reused=_known(whole, whole.spent.chunks - whole.spent.chunks_embedded),
        stages=[_stage(each, prices) for each in stages],
        **facts,
        **_cost(whole, prices),
    )


def _stage(totals: StageTotals, prices: Prices) -> StageReceipt:
    return StageReceipt(
        stage=totals.stage or "", tries=totals.tries, wall_ms=totals.wall_ms, **_cost(totals, prices)
    )


def _cost(totals: StageTotals, prices: Prices) -> dict[str, Any]:
    cost = {name: _known(totals, round(getattr(totals.spent, name), _DIGITS)) for name in _COST}
    return {**cost, "usd": _known(totals, round(prices.of(totals.spent), _DIGITS + 4))}


def _known(totals: StageTotals, amount: float) -> float | None:
    """Return `amount`; None when none of the jobs was metered wholly."""
    return None if 0 < totals.jobs == totals.unknown_jobs else amount

"""Receipts as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexmill.contracts.cost import Cost, Receipt

_UNKNOWN = "?"
_WIDTH = 10


def summary(receipt: Receipt) -> str:
    """Return the receipt of some jobs in one line."""
    return (
        f"receipt: {receipt.jobs} documents, {_count(receipt.chunks)} chunks "
        f"({_count(receipt.chunks_embedded)} embedded), {_decimal(receipt.gb_s)} GB-s, "
        f"{_count(receipt.sqs_requests)} SQS / {_count(_s3(receipt))} S3 requests, "
        f"about ${_per_million(receipt, receipt.jobs)} per 1M such jobs"
    )


def receipt_lines(receipt: Receipt) -> Iterator[str]:
    """Return the receipt of one job: a line for each stage, the sum, and what was made."""
    names = ("tries", "wall", "GB-s", "SQS", "S3", "DynamoDB", "$ per 1M")
    yield f"{'receipt':<11}" + "".join(f"{name:>{_WIDTH}}" for name in names)
    for stage in receipt.stages:
        wall = "" if stage.wall_ms is None else f"{stage.wall_ms / 1e3:.3f} s"
        yield _line(stage.stage, "" if stage.tries is None else str(stage.tries), wall, stage)
    yield _line("total", "", "", receipt)
    yield (
        f"{_count(receipt.chunks)} chunks ({_count(receipt.chunks_embedded)} embedded, "
        f"{_count(receipt.chunks_reused)} reused, {_count(receipt.chunks_removed)} removed), "
        f"{_count(receipt.tokens)} tokens, {_count(receipt.bytes_fetched)} bytes fetched, "
        f"{_count(receipt.bytes_stored)} bytes stored"
    )
    if receipt.unknown_jobs:
        yield f"{_UNKNOWN} was not metered: a release without receipts did it"


def _line(name: str, tries: str, wall: str, cost: Cost) -> str:
    numbers = (cost.gb_s, cost.sqs_requests, _s3(cost), cost.dynamodb_requests)
    texts = [tries, wall, *map(_decimal, numbers), _per_million(cost, 1)]
    return f"{name:<11}" + "".join(f"{text:>{_WIDTH}}" for text in texts)


def _s3(cost: Cost) -> float | None:
    return None if cost.s3_reads is None or cost.s3_writes is None else cost.s3_reads + cost.s3_writes


def _per_million(cost: Cost, jobs: int) -> str:
    return _UNKNOWN if cost.usd is None or not jobs else f"{cost.usd / jobs * 1e6:,.2f}"


def _count(number: float | None) -> str:
    return _UNKNOWN if number is None else f"{number:,.0f}"


def _decimal(number: float | None) -> str:
    return _UNKNOWN if number is None else f"{number:,.3g}" if number < 100 else f"{number:,.0f}"

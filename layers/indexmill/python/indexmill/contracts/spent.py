"""Spent: what a job's stage, or its submit, used of what AWS bills, in units and never in money."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict

Amounts = dict[str, float]
"""Some fields of Spent, by name: what is summed up and kept; a field that is missing is 0."""


class Spent(BaseModel):
    """A job's share of an invocation, and what was done for the job alone.

    Shares are fractions: an invocation with ten messages is a tenth of an invocation for each.
    """

    model_config = ConfigDict(frozen=True)

    gb_s: float = 0
    """Billed GB-seconds: the invocation's duration times the function's memory."""
    invocations: float = 0
    api_requests: float = 0
    sqs_requests: float = 0
    """Receives and deletes of the event source included."""
    sqs_units: float = 0
    """What SQS bills: a request once for each started 64 KiB of its messages."""
    s3_reads: float = 0
    s3_writes: float = 0
    dynamodb_requests: float = 0
    dynamodb_reads: float = 0
    """Items that were read."""
    dynamodb_writes: float = 0
    """Items that were written."""
    bytes_fetched: int = 0
    """Of the page as it was unpacked; 0 for content that was stored before."""
    bytes_stored: int = 0
    """Of objects that were written to S3."""
    chunks: int = 0
    chunks_embedded: int = 0
    """Those that were sent to the model; the other ones were there already."""
    chunks_removed: int = 0
    """Those that only the version before had."""
    tokens: int = 0
    """Of all chunks, in the model's own tokenizer."""
    tokens_embedded: int = 0

    def amounts(self) -> Amounts:
        """Return the fields that are not 0."""
        return {name: amount for name, amount in self.__dict__.items() if amount}


SHARED: Final = (
    *("gb_s", "invocations", "api_requests", "sqs_requests", "sqs_units", "s3_reads", "s3_writes"),
    *("dynamodb_requests", "dynamodb_reads", "dynamodb_writes"),
)
"""Fields that the jobs of an invocation share; the others are one job's own."""


def total(*parts: Mapping[str, float]) -> Amounts:
    """Return the sum of all parts."""
    whole = dict(parts[0])
    for part in parts[1:]:
        for name, amount in part.items():
            whole[name] = whole.get(name, 0) + amount
    return whole

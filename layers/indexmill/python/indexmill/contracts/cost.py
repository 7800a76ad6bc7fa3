"""Cost of a job: what it used of what AWS bills, prices, its receipt, and the budget that bounds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field

Amounts = dict[str, float]
"""Some fields of Spent, by name: what is summed up and kept; a field that is missing is 0."""
_PER_UNIT: Final = 1e-6
"""Prices are for a million units."""
_MOST_CHUNKS: Final = 1_000_000
_MOST_BYTES: Final = 1_000_000_000_000
_MOST_USD: Final = 1_000_000


class Spent(BaseModel):
    """A job's share of an invocation, and what was done for the job alone, in units and never in money.

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


class Prices(BaseModel):
    """Prices of one metered unit each, in millionths of a US dollar (dollars per million units).

    The defaults are of AWS's list for us-east-1 on arm64, without a free tier, November 2026.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lambda_gb_s: float = Field(default=13.3334, ge=0)
    lambda_request: float = Field(default=0.2, ge=0)
    api_request: float = Field(default=3.5, ge=0)
    """A request to the REST API."""
    sqs_request: float = Field(default=0.4, ge=0)
    """Also each further 64 KiB of a request's messages."""
    s3_write: float = Field(default=5.0, ge=0)
    """PUT, COPY, POST and LIST."""
    s3_read: float = Field(default=0.4, ge=0)
    dynamodb_write: float = Field(default=0.625, ge=0)
    """For each started KiB of an item."""
    dynamodb_read: float = Field(default=0.125, ge=0)
    """For each started 4 KiB of an item, strongly consistent."""
    embedding_token: float = Field(default=0.0, ge=0)
    """Of the embedding endpoint; 0 where it is paid by the hour."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `sqs_request=0.4,s3_write=5`; what is not named has its list price. Raises ValueError."""
        parts = [part.partition("=") for part in text.split(",") if part.strip()]
        return cls.model_validate({name.strip(): value.strip() for name, _, value in parts})

    def of(self, spent: Spent) -> float:
        """Return the price of `spent` in US dollars."""
        units = (
            spent.gb_s * self.lambda_gb_s
            + spent.invocations * self.lambda_request
            + spent.api_requests * self.api_request
            + spent.sqs_units * self.sqs_request
            + spent.s3_writes * self.s3_write
            + spent.s3_reads * self.s3_read
            + spent.dynamodb_writes * self.dynamodb_write
            + spent.dynamodb_reads * self.dynamodb_read
            + spent.tokens_embedded * self.embedding_token
        )
        return float(units * _PER_UNIT)


class Cost(BaseModel):
    """Requests and compute, and their price.

    Everything is null where it was not metered: for jobs of releases without receipts.
    """

    gb_s: float | None
    """Billed GB-seconds of functions."""
    invocations: float | None
    """Of functions; a job has a share of those that it was in."""
    api_requests: float | None
    """To the REST API: the submit, and results that came over HTTP."""
    sqs_requests: float | None
    s3_reads: float | None
    s3_writes: float | None
    dynamodb_requests: float | None
    usd: float | None
    """US dollars, by the table of prices that is in force when the receipt is read."""


class StageReceipt(Cost):
    """One stage, in all of its tries and attempts, with the Orchestrator's work on its results."""

    stage: str
    """A stage's name, or `submission`."""
    tries: int | None
    wall_ms: int | None
    """Milliseconds by the worker's clock; null for the submission."""


class Receipt(Cost):
    """Sum over jobs; of a job in flight, so far."""

    jobs: int
    unknown_jobs: int
    """Jobs that were not metered, or only in part; the sums have what is known, of these jobs too."""
    chunks: int | None
    chunks_embedded: int | None
    chunks_reused: int | None
    """Those that were there already, with their vectors."""
    chunks_removed: int | None
    """Those that only the version before had."""
    tokens: int | None
    """Of all chunks, in the model's own tokenizer."""
    tokens_embedded: int | None
    """Of the chunks that were sent to the model."""
    bytes_fetched: int | None
    """Unpacked; 0 for content that was stored before."""
    bytes_stored: int | None
    """Of objects that were written to S3."""
    stages: list[StageReceipt]
    """In the order of a job."""


class Budget(BaseModel):
    """Bounds of one job; null for none. A job that exceeds one of them after a stage fails."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    max_chunks: int | None = Field(default=None, ge=1, le=_MOST_CHUNKS)
    max_bytes: int | None = Field(default=None, ge=1, le=_MOST_BYTES)
    """Of the fetched content, unpacked."""
    max_cost_usd: float | None = Field(default=None, gt=0, le=_MOST_USD)
    """The price on the receipt until then, and the model's for the chunks that are still to be embedded."""


class JobChunks(BaseModel):
    """Chunks of a job's document, and what became of those of the version before."""

    total: int
    reused: int
    """Those that were embedded before, for an earlier version."""
    embedded: int
    """Those that were sent to the model."""
    removed: int
    """Those of the version before that this one does not have."""

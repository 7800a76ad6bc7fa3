"""Receipt: what one job, or all jobs of a batch or a corpus, used and cost."""

from __future__ import annotations

from pydantic import BaseModel


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

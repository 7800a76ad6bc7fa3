"""Price table: what one metered unit costs, in millionths of a US dollar (dollars per million units)."""

from __future__ import annotations

from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field

from indexmill.contracts.spent import Spent

_PER_UNIT: Final = 1e-6
"""Prices are for a million units."""


class Prices(BaseModel):
    """Prices of AWS's list for us-east-1 on arm64, without a free tier, November 2026."""

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

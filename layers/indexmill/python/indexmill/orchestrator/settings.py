"""Settings of the Orchestrator's functions."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from indexmill.contracts.identity import FREE
from indexmill.contracts.prices import Prices
from indexmill.orchestrator.admission.admit import Limits, Quota
from indexmill.platform.postgres.address import DatabaseSettings
from indexmill.platform.settings import FunctionSettings

QuotaText = Annotated[Quota, BeforeValidator(Quota.parse)]


class AdmissionSettings(FunctionSettings):
    """Quotas and global limits; only the template sets their values."""

    quota_free: QuotaText
    quota_pro: QuotaText
    quota_enterprise: QuotaText
    dispatch_window: int
    max_pending: int

    @property
    def limits(self) -> Limits:
        """Return the quotas by tier and the global limits."""
        quotas = {FREE: self.quota_free, "pro": self.quota_pro, "enterprise": self.quota_enterprise}
        return Limits(quotas, self.dispatch_window, self.max_pending, max(1, self.dispatch_window // 2))


class OrchestratorSettings(AdmissionSettings, DatabaseSettings):
    """Settings of all functions that change jobs."""

    scrape_queue_url: str
    chunk_queue_url: str
    embed_queue_url: str


class OrchestratorApiSettings(OrchestratorSettings):
    """orchestrator/api."""

    function: ClassVar[str] = "OrchestratorApi"

    database_answer_seconds: float = 4.0
    allowed_private_hosts: str = ""
    prices: Annotated[Prices, BeforeValidator(Prices.parse)] = Prices()
    state_table: str
    stream_token_key: str | None = None
    stream_token_key_secret_arn: str | None = None


class OrchestratorStreamSettings(AdmissionSettings, DatabaseSettings):
    """orchestrator/stream."""

    function: ClassVar[str] = "OrchestratorStream"

    database_answer_seconds: float = 4.0
    state_table: str
    stream_windows: int = 50
    """How many streams may wait at once; each holds an execution environment."""
    integration_timeout_seconds: float = 29.0


class OrchestratorResultsSettings(OrchestratorSettings):
    """orchestrator/results."""

    function: ClassVar[str] = "OrchestratorResults"

    callbacks_queue_url: str
    callbacks_dlq_url: str


class OrchestratorSweeperSettings(OrchestratorSettings):
    """orchestrator/sweeper."""

    function: ClassVar[str] = "OrchestratorSweeper"

    callbacks_queue_url: str
    callbacks_dlq_url: str
    scrape_dlq_url: str
    chunk_dlq_url: str
    embed_dlq_url: str
    scrape_mapping_id: str
    chunk_mapping_id: str
    embed_mapping_id: str
    index_builder_function: str
    payload_retention_days: int = 7
    state_table: str


class OrchestratorDeadLettersSettings(OrchestratorSettings):
    """orchestrator/dead_letters."""

    function: ClassVar[str] = "OrchestratorDeadLetters"

    bucket_name: str

"""Settings of the Orchestrator's functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from indexmill.contracts.cost import Prices
from indexmill.contracts.identity import CorpusIsolation
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.platform.limits.policy import FairShareStrategy, LimitSettings, PressureSettings, Share
from indexmill.platform.postgres.address import DatabaseSettings
from indexmill.platform.security.urls import DomainRates
from indexmill.platform.settings import QuotaSettings


class AdmissionSettings(QuotaSettings):
    """Quotas and global limits; only the template sets their values."""

    dispatch_window: int
    max_pending: int
    domain_rates: Annotated[DomainRates, BeforeValidator(DomainRates.parse)]

    @property
    def limits(self) -> JobLimits:
        """Return the quotas by tier and the global limits."""
        half = max(1, self.dispatch_window // 2)
        return JobLimits(self.quotas, self.dispatch_window, self.max_pending, self.domain_rates, half)


class OrchestratorSettings(AdmissionSettings, DatabaseSettings):
    """Settings of all functions that change jobs."""

    scrape_queue_url: str
    chunk_queue_url: str
    embed_queue_url: str


class OrchestratorApiSettings(OrchestratorSettings, LimitSettings, PressureSettings):
    """orchestrator/api."""

    function: ClassVar[str] = "OrchestratorApi"

    corpus_isolation: CorpusIsolation = CorpusIsolation.CALLER
    database_answer_seconds: float = 4.0
    allowed_private_hosts: str = ""
    release_id: str = ""
    bucket_name: str
    scraper_function: str
    """scraper/api, for dry runs."""
    prices: Annotated[Prices, BeforeValidator(Prices.parse)] = Prices()
    fair_share_scraper: Share
    fair_share_chunking: Share
    fair_share_embedding: Share
    stream_token_key: str | None = None
    stream_token_key_secret_arn: str | None = None
    embedding_model: str
    embedding_dimension: int

    @property
    def shares(self) -> dict[str, FairShareStrategy | None]:
        """Return what each service divides among its callers."""
        return {
            "orchestrator": self.fair_share,
            "scraper": self.fair_share_scraper,
            "chunking": self.fair_share_chunking,
            "embedding": self.fair_share_embedding,
        }


class OrchestratorStreamSettings(AdmissionSettings, DatabaseSettings, LimitSettings):
    """orchestrator/stream."""

    function: ClassVar[str] = "OrchestratorStream"

    database_answer_seconds: float = 4.0
    stream_windows: int = 50
    """How many streams may wait at once; each holds an execution environment."""


class OrchestratorResultsSettings(OrchestratorSettings):
    """orchestrator/results."""

    function: ClassVar[str] = "OrchestratorResults"

    prices: Annotated[Prices, BeforeValidator(Prices.parse)] = Prices()
    callbacks_queue_url: str
    callbacks_dlq_url: str


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Days for which others keep what a deletion leaves to them."""

    raw: int
    logs: int
    audit: int
    backups: int


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
    embedding_model: str
    embedding_dimension: int
    payload_retention_days: int = 7
    state_table: str
    bucket_name: str
    signing_key_id: str
    raw_retention_days: int = 400
    log_retention_days: int = 30
    audit_retention_days: int = 400
    database_backup_days: int = 7

    @property
    def lifetimes(self) -> Lifetimes:
        """Return what reports of deletions say about the rest."""
        days = (self.raw_retention_days, self.log_retention_days)
        return Lifetimes(*days, self.audit_retention_days, self.database_backup_days)


class OrchestratorDeadLettersSettings(OrchestratorSettings):
    """orchestrator/dead_letters."""

    function: ClassVar[str] = "OrchestratorDeadLetters"

    bucket_name: str
    scrape_dlq_url: str
    chunk_dlq_url: str
    embed_dlq_url: str
    callbacks_dlq_url: str

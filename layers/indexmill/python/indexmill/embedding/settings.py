"""Settings of Embedding's three functions."""

from __future__ import annotations

from typing import ClassVar

from indexmill.contracts.identity import CorpusIsolation
from indexmill.platform.limits.policy import LimitSettings, PressureSettings
from indexmill.platform.postgres.address import DatabaseSettings
from indexmill.platform.settings import QuotaSettings


class EmbeddingSettings(DatabaseSettings):
    """Settings of all three functions: the database and the model."""

    embedding_base_url: str
    """Ends with the version, for example `…/v1`."""
    embedding_model: str
    embedding_dimension: int
    embedding_api_key: str | None = None
    embedding_api_key_secret_arn: str | None = None


class EmbeddingWriteApiSettings(EmbeddingSettings, QuotaSettings, LimitSettings, PressureSettings):
    """embedding/write_api."""

    function: ClassVar[str] = "EmbeddingWriteApi"

    corpus_isolation: CorpusIsolation = CorpusIsolation.CALLER
    database_answer_seconds: float = 4.0
    embed_queue_url: str
    bucket_name: str
    allowed_private_hosts: str = ""


class EmbeddingWorkerSettings(EmbeddingSettings):
    """embedding/worker."""

    function: ClassVar[str] = "EmbeddingWorker"

    embed_queue_url: str
    embed_dlq_url: str
    callbacks_queue_url: str
    bucket_name: str
    state_table: str


class EmbeddingReadApiSettings(EmbeddingSettings, LimitSettings):
    """embedding/read_api."""

    function: ClassVar[str] = "EmbeddingReadApi"

    corpus_isolation: CorpusIsolation = CorpusIsolation.CALLER
    database_answer_seconds: float = 4.0

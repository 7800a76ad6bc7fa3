"""Settings of Embedding's three functions."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

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
    embedding_vector_weight: float = Field(default=0.3, ge=0, le=1)
    """Share of the vector list in a hybrid score; it depends on the model."""
    rerank_url: str = ""
    """Of a `/rerank` endpoint; empty: none."""
    rerank_model: str = ""
    rerank_api_key: str | None = None
    rerank_api_key_secret_arn: str | None = None
    rerank_seconds: float = Field(default=1.0, gt=0, le=10)
    database_answer_seconds: float = 4.0

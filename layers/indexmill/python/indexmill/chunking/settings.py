"""Settings of Chunking's two functions."""

from __future__ import annotations

from typing import ClassVar

from indexmill.platform.limits.policy import LimitSettings, PressureSettings
from indexmill.platform.settings import FunctionSettings


class ChunkingSettings(FunctionSettings):
    """Settings of both functions."""

    bucket_name: str
    tokenizer_file: str
    """The embedding model's own tokenizer.json; relative paths are seen from the function's root."""
    chunk_queue_url: str


class ChunkingApiSettings(ChunkingSettings, LimitSettings, PressureSettings):
    """chunking/api."""

    function: ClassVar[str] = "ChunkingApi"


class ChunkingWorkerSettings(ChunkingSettings):
    """chunking/worker."""

    function: ClassVar[str] = "ChunkingWorker"

    chunk_dlq_url: str
    callbacks_queue_url: str
    state_table: str

"""Settings of the Chunking function."""

from __future__ import annotations

from typing import ClassVar

from indexmill.platform.settings import FunctionSettings


class ChunkingApiSettings(FunctionSettings):
    """POST /chunking/chunk and the Orchestrator's direct invoke."""

    function: ClassVar[str] = "ChunkingApi"

    bucket_name: str
    tokenizer_file: str
    """The embedding model's own tokenizer.json; relative paths are seen from the function's root."""
    integration_timeout_seconds: float = 29.0

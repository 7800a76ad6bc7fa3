"""Consumer of the chunk queue."""

from __future__ import annotations

from indexmill.chunking.settings import ChunkingWorkerSettings
from indexmill.chunking.wiring import build_worker
from indexmill.platform.log_texts import entry_point

handler = entry_point(build_worker(ChunkingWorkerSettings.from_environment()))

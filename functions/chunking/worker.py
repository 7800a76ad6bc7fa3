"""Consumer of the chunk queue."""

from indexmill.chunking.settings import ChunkingWorkerSettings
from indexmill.chunking.wiring import build_worker
from indexmill.platform.observability import entry_point

handler = entry_point(build_worker(ChunkingWorkerSettings.from_environment()))

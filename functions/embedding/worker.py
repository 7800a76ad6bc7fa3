"""Consumer of the embed queue."""

from indexmill.embedding.settings import EmbeddingWorkerSettings
from indexmill.embedding.wiring import build_worker
from indexmill.platform.observability import entry_point

handler = entry_point(build_worker(EmbeddingWorkerSettings.from_environment()))

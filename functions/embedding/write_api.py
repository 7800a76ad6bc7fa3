"""REST endpoints of Embedding's writes."""

from indexmill.embedding.settings import EmbeddingWriteApiSettings
from indexmill.embedding.wiring import build_write_api
from indexmill.platform.observability import entry_point

handler = entry_point(build_write_api(EmbeddingWriteApiSettings.from_environment()))

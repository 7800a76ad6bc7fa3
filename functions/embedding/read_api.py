"""REST endpoint of search."""

from indexmill.embedding.settings import EmbeddingReadApiSettings
from indexmill.embedding.wiring import build_read_api
from indexmill.platform.observability import entry_point

handler = entry_point(build_read_api(EmbeddingReadApiSettings.from_environment()))

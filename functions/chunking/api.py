"""REST endpoints of Chunking."""

from indexmill.chunking.settings import ChunkingApiSettings
from indexmill.chunking.wiring import build_api
from indexmill.platform.observability import entry_point

handler = entry_point(build_api(ChunkingApiSettings.from_environment()))

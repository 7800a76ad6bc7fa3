"""REQUEST authorizer of a job's stream."""

from indexmill.access.settings import StreamAuthorizerSettings
from indexmill.access.wiring import build_stream_authorizer
from indexmill.platform.observability import entry_point

handler = entry_point(build_stream_authorizer(StreamAuthorizerSettings.from_environment()))

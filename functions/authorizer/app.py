"""REQUEST authorizer of the REST API."""

from indexmill.access.settings import AuthorizerSettings
from indexmill.access.wiring import build_authorizer
from indexmill.platform.observability import entry_point

handler = entry_point(build_authorizer(AuthorizerSettings.from_environment()))

"""Composition root of Access: the only place that builds its adapters."""

from __future__ import annotations

from indexmill.access.adapters.http_membership import HttpMembership
from indexmill.access.authorize import Authorize
from indexmill.access.authorize_stream import AuthorizeStream
from indexmill.access.ports import Membership
from indexmill.access.settings import AuthorizerSettings, StreamAuthorizerSettings
from indexmill.access.validate import ValidateApiKey
from indexmill.contracts.errors import ErrorCode
from indexmill.platform.aws.secrets import Secret
from indexmill.platform.observability import Observability
from indexmill.platform.settings import csv
from indexmill.platform.time.clock import SystemClock


def build_authorizer(settings: AuthorizerSettings, membership: Membership | None = None) -> Authorize:
    """Build authorizer/app."""
    return Authorize(_validate(settings, membership), Observability("authorizer", level=settings.log_level))


def build_stream_authorizer(
    settings: StreamAuthorizerSettings, membership: Membership | None = None
) -> AuthorizeStream:
    """Build authorizer/stream; its secret is read when the first token comes."""
    keys = Secret(
        settings.stream_token_key,
        settings.stream_token_key_secret_arn,
        previous=settings.previous_stream_token_key,
        unavailable=ErrorCode.AUTH_UNAVAILABLE,
    )
    return AuthorizeStream(build_authorizer(settings, membership), SystemClock(), keys)


def _validate(settings: AuthorizerSettings, membership: Membership | None) -> ValidateApiKey:
    hashes = {*csv(settings.internal_key_hashes), *csv(settings.orchestrator_key_hash)}
    asked = membership or HttpMembership(settings.membership_url)
    return ValidateApiKey(asked, SystemClock(), frozenset(hashes))

"""Composition root of Access: the only place that builds its adapters."""

from __future__ import annotations

from indexmill.access.adapters.http_membership import HttpMembership
from indexmill.access.authorize import Authorize, AuthorizeStream
from indexmill.access.identify import Identify, Membership, Roots, ValidateApiKey
from indexmill.access.settings import AuthorizerSettings, StreamAuthorizerSettings
from indexmill.contracts.errors import ErrorCode
from indexmill.platform.aws.secrets import Secret
from indexmill.platform.observability import Observability
from indexmill.platform.settings import csv
from indexmill.platform.time import SystemClock


def build_authorizer(
    settings: AuthorizerSettings, membership: Membership | None = None, roots: Roots | None = None
) -> Authorize:
    """Build authorizer/app."""
    observability = Observability("authorizer", level=settings.log_level)
    roots = roots or Roots(settings.state_table)
    return Authorize(Identify(_validate(settings, membership), roots, observability), observability)


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
    asked = membership or HttpMembership(
        settings.membership_url,
        style=settings.membership_auth_style,
        open_s=settings.membership_breaker_seconds,
    )
    return ValidateApiKey(asked, SystemClock(), frozenset(hashes))

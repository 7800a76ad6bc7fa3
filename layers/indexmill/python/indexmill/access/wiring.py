"""Access's composition root."""

from __future__ import annotations

from indexmill.access.adapters.http_membership import HttpMembership
from indexmill.access.authorize import Authorize
from indexmill.access.ports import Membership
from indexmill.access.settings import AuthorizerSettings
from indexmill.access.validate import ValidateApiKey
from indexmill.platform.clock import SystemClock
from indexmill.platform.observability import Observability
from indexmill.platform.settings import csv


def build_authorizer(settings: AuthorizerSettings, membership: Membership | None = None) -> Authorize:
    """Build authorizer/app."""
    hashes = {*csv(settings.internal_key_hashes), *csv(settings.orchestrator_key_hash)}
    asked = membership or HttpMembership(settings.membership_url)
    validate = ValidateApiKey(asked, SystemClock(), frozenset(hashes))
    return Authorize(validate, Observability("authorizer", level=settings.log_level))

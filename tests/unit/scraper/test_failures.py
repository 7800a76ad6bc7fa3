"""Transient and permanent errors of a page."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import PermanentError, TransientError, failure
from indexmill.scraper.adapters.answer import damaged, status_failure
from tests.support.error_codes import is_known_code

TRANSIENT = [
    "connection_refused",
    "connection_error",
    "connection_timeout",
    "read_timeout",
    "deadline_exceeded",
    "tls_error",
    "dns_error",
    "robots_unavailable",
]
PERMANENT = [
    "robots_disallowed",
    "url_host_not_allowed",
    "too_many_redirects",
    "content_too_large",
    "content_bomb",
    "unsupported_content_type",
    "empty_content",
    "login_required",
    "soft_404",
    "needs_javascript",
    "other_host",
    "parse_error",
]


@pytest.mark.shows("R059")
@pytest.mark.parametrize("code", TRANSIENT)
def test_what_may_pass_is_transient(code: str) -> None:
    error = failure(code)
    assert isinstance(error, TransientError)
    assert error.code == code


@pytest.mark.parametrize("code", PERMANENT)
def test_what_stays_is_permanent(code: str) -> None:
    error = failure(code)
    assert isinstance(error, PermanentError)
    assert error.code == code


def test_a_damaged_body_is_tried_again_and_ends_as_a_parse_error() -> None:
    assert isinstance(damaged(), TransientError)
    assert damaged().code == "parse_error"


@pytest.mark.fault("F55")
@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_a_busy_site_is_tried_again(status: int) -> None:
    error = status_failure(status, 7)
    assert (type(error), error.code, error.retry_after) == (TransientError, f"http_{status}", 7)


@pytest.mark.fault("F55")
@pytest.mark.parametrize("status", [301, 304, 400, 401, 403, 404, 405, 410, 418, 451])
def test_a_refusing_site_is_not_asked_again(status: int) -> None:
    error = status_failure(status)
    assert (type(error), error.code) == (PermanentError, f"http_{status}")
    assert is_known_code(error.code)


def test_a_403_says_what_it_likely_means() -> None:
    assert status_failure(403).message == "Domain returned 403 — likely blocked or robots.txt restricted"

"""Rates of sites, from the setting DomainRates."""

from __future__ import annotations

import pytest

from indexmill.platform.security.urls import DEFAULT_RATE, DomainRate, DomainRates, site_of

RATES = DomainRates.parse("*=2:5, example.com=0.5,*.example.com=4,docs.example.com:8443=unlimited,[::1]=9:9")


@pytest.mark.parametrize(
    ("site", "rate"),
    [
        ("other.org", DomainRate(2.0, 5)),
        ("example.com", DomainRate(0.5, 1)),
        ("example.com:8080", DomainRate(0.5, 1)),
        ("a.b.example.com", DomainRate(4.0, 1)),
        ("docs.example.com", DomainRate(4.0, 1)),
        ("docs.example.com:8443", None),
        ("notexample.com", DomainRate(2.0, 5)),
    ],
)
def test_the_nearest_entry_counts(site: str, rate: DomainRate | None) -> None:
    assert RATES.of(site) == rate


def test_without_an_entry_for_all_others_the_default_counts() -> None:
    assert DomainRates.parse("").of("example.com") == DEFAULT_RATE == DomainRate(1.0, 3)
    assert DomainRates.parse("*=unlimited").of("example.com") is None


@pytest.mark.parametrize("text", ["example.com", "a=b", "*=0", "*=-1", "a=1:", "a=1:2:3", "a b=1", "=1"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST=RATE"):
        DomainRates.parse(text)


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("http://example.com/a", "example.com"),
        ("https://example.com/", "example.com"),
        ("https://example.com:8443/", "example.com:8443"),
        ("http://[::1]:81/x", "[::1]:81"),
    ],
)
def test_http_and_https_of_a_host_are_one_site(url: str, site: str) -> None:
    assert site_of(url) == site

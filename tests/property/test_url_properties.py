"""Properties of every URL."""
# ruff: noqa: RUF001 - the look-alikes are the point

from __future__ import annotations

import random
import string
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexmill.contracts.errors import CallerError
from indexmill.platform.security.addresses import is_public
from indexmill.platform.security.urls import canonical_url

INPUTS = 340_000
MUTANTS = 67
ODD = [
    *"@:/?#[]\\%.0123456789abcdefxX-_* \t\n\0",
    "%2e",
    "%40",
    "。",
    "１",
    "①",
    "ß",
    "а",
    "\u200d",
    "\u202e",
    "xn--",
    "//",
]
NONE = frozenset[tuple[str, int]]()
HOSTS = st.one_of(
    st.sampled_from(
        ["example.com", "Bücher.de", "127.0.0.1", "0x7f.1", "[::1]", "１２７.0.0.1", "a.b.c.", "xn--a"]
    ),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda ip: f"[{ip}]"),
    st.integers(0, 2**33).map(str),
    st.text(max_size=30),
)
TAILS = st.text(alphabet=string.printable + "äß你%./?#@[]\\", max_size=60)
URLS = st.builds(
    lambda scheme, host, port, tail: f"{scheme}{host}{port}{tail}",
    st.sampled_from(["http://", "https://", "HTTP://", "http:", "//", "ftp://", ""]),
    HOSTS,
    st.sampled_from(["", ":80", ":443", ":", ":8080", ":x"]),
    st.one_of(st.just(""), TAILS.map(lambda tail: "/" + tail), TAILS),
)

ANY_TEXT = st.one_of(URLS, st.text())
ADDRESSES = st.ip_addresses()


def accepted(raw: str) -> str | None:
    try:
        return canonical_url(raw, allowed_hosts=NONE)
    except CallerError:
        return None


@settings(max_examples=400, deadline=None)
@given(ANY_TEXT)
def test_a_url_is_canonical_after_one_pass_or_refused(raw: str) -> None:
    url = accepted(raw)
    if url is None:
        return
    assert accepted(url) == url
    assert url.isascii()
    assert "#" not in url
    assert not set(url) & set(string.whitespace + "\\")


@settings(max_examples=400, deadline=None)
@given(URLS)
def test_every_parser_reads_the_same_public_host(raw: str) -> None:
    url = accepted(raw)
    if url is None:
        return
    ours, theirs = urlsplit(url), httpx.URL(url)
    assert ours.username is None
    assert not theirs.userinfo
    assert ours.hostname == theirs.raw_host.decode().strip("[]")
    assert ours.scheme == theirs.scheme
    assert (ours.port or None) == theirs.port
    host = ours.hostname or ""
    assert is_public(host) or ("." in host and not host.rpartition(".")[2].isdigit())


@settings(max_examples=200, deadline=None)
@given(ADDRESSES)
def test_an_address_is_fetched_exactly_when_it_is_public(ip: object) -> None:
    literal = f"[{ip}]" if ":" in str(ip) else str(ip)
    assert (accepted(f"http://{literal}/") is not None) == is_public(str(ip))


def mutants(value: Any) -> list[Any]:
    """Return inputs near `value`: text with another character somewhere, an address with another bit."""
    rng = random.Random(str(value))
    if not isinstance(value, str):
        return [type(value)(int(value) ^ 1 << rng.randrange(value.max_prefixlen)) for _ in range(MUTANTS)]
    made = []
    for _ in range(MUTANTS):
        at = rng.randrange(len(value) + 1)
        made.append(value[:at] + rng.choice(ODD) + value[at + rng.randrange(2) :])
    return made


@pytest.mark.long
@pytest.mark.shows("S10")
@pytest.mark.parametrize(
    ("test", "inputs"),
    [
        (test_a_url_is_canonical_after_one_pass_or_refused, ANY_TEXT),
        (test_every_parser_reads_the_same_public_host, URLS),
        (test_an_address_is_fetched_exactly_when_it_is_public, ADDRESSES),
    ],
    ids=["canonical", "parsers", "addresses"],
)
def test_a_third_of_a_million_inputs(test: Any, inputs: st.SearchStrategy[Any]) -> None:
    """The properties above for 340,000 inputs each: what hypothesis draws, and mutants of it."""
    seen = 0

    def all_near(value: Any) -> None:
        nonlocal seen
        for each in (value, *mutants(value)):
            seen += 1
            test.hypothesis.inner_test(each)

    examples = INPUTS // (MUTANTS + 1) + 1
    many = settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    many(given(inputs)(all_near))()
    assert seen >= INPUTS

"""Properties of every URL."""
# ruff: noqa: RUF001 - the look-alikes are the point

from __future__ import annotations

import string
from urllib.parse import urlsplit

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.contracts.errors import CallerError
from indexmill.platform.security.addresses import is_public
from indexmill.platform.security.urls import canonical_url

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


def accepted(raw: str) -> str | None:
    try:
        return canonical_url(raw, allowed_hosts=NONE)
    except CallerError:
        return None


@settings(max_examples=400, deadline=None)
@given(st.one_of(URLS, st.text()))
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
@given(st.ip_addresses())
def test_an_address_is_fetched_exactly_when_it_is_public(ip: object) -> None:
    literal = f"[{ip}]" if ":" in str(ip) else str(ip)
    assert (accepted(f"http://{literal}/") is not None) == is_public(str(ip))

"""The one spelling of a URL."""
# ruff: noqa: RUF001 - the look-alikes are the point

from __future__ import annotations

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.platform.security.urls import canonical_url, origin, parse_allowed_hosts

ALLOWED = parse_allowed_hosts("127.0.0.1:8081, localhost:8082 ,[::1]:8083")

SAME = {
    "HTTP://Example.COM": "http://example.com/",
    "http://example.com:80/a": "http://example.com/a",
    "https://example.com:443/": "https://example.com/",
    "https://example.com:/x": "https://example.com/x",
    "http://example.com:443/": "http://example.com:443/",
    "https://example.com./a": "https://example.com/a",
    "https://example.com/a#part": "https://example.com/a",
    "https://example.com/#a@b": "https://example.com/",
    "https://example.com/?": "https://example.com/",
    "https://example.com?b=1&a=2": "https://example.com/?b=1&a=2",
    "https://example.com/%7euser/%e4%bd%a0": "https://example.com/~user/%E4%BD%A0",
    "https://example.com/ä%20b": "https://example.com/%C3%A4%20b",
    "https://example.com/100%": "https://example.com/100%25",
    "https://example.com/a%2Fb": "https://example.com/a%2Fb",
    "https://example.com/a/./b/../c": "https://example.com/a/c",
    "https://example.com/a/%2e%2e/c/.": "https://example.com/c/",
    "https://example.com/../..": "https://example.com/",
    "https://example.com/.well-known/x": "https://example.com/.well-known/x",
    "https://example.com/?q=[a]&r=é": "https://example.com/?q=%5Ba%5D&r=%C3%A9",
    "https://bücher.example/": "https://xn--bcher-kva.example/",
    "https://XN--BCHER-KVA.example/": "https://xn--bcher-kva.example/",
    "https://例え。テスト/": "https://xn--r8jz45g.xn--zckzah/",
    "https://under_score.example.com/": "https://under_score.example.com/",
    "https://r3---sn-x.example.com/": "https://r3---sn-x.example.com/",
    "http://8.8.8.8/": "http://8.8.8.8/",
    "http://[2606:4700:4700:0::1111]/": "http://[2606:4700:4700::1111]/",
    "http://127.0.0.1:8081/x": "http://127.0.0.1:8081/x",
    "http://LOCALHOST:8082": "http://localhost:8082/",
    "http://[::1]:8083/": "http://[::1]:8083/",
}

REFUSED = {
    "url_invalid": [
        "", " ", "x", "example.com", "//host/x", "HTTP:host", "http:/x", "http:///x", "http://", "http://:80/",
        "http://h/\r\nX: y", "http://h/a\tb", "http://h/a b", " http://example.com/", "http://example.com/\x00",
        "http://evil.com\\@example.com/", "http://example.com\\", "http://exa%6dple.com/", "http://a..b/",
        "http://.a/", "http://-a.com/", "http://a.com:80abc/", "http://a.com:0/", "http://a.com:65536/",
        "http://a.com:８０/", "http://a:b:c/", "http://[::1/",
        "http://[::1]x/", "http://[zz]/", "http://[1.2.3.4]/",
        "http://xn--\u200d.com/", "http://xn--99999999.com/", f"http://{'a' * 64}.com/",
        f"http://{'a.' * 130}com/",
        f"http://example.com/{'a' * 2048}", f"http://example.com/{'ä' * 1000}", "http://a℀b.com/",
        "http://ex\u200bample.com/", "http://example.com/\ud800", "http://ex!ample.com/",
    ],
    "url_scheme_not_allowed": [
        "file:///etc/passwd", "file:///proc/self/environ", "ftp://h/", "gopher://h/", "data:text/html,x",
        "javascript:alert(1)", "ws://h/", "s3://b/k", "localhost:8082/x",
    ],
    "url_credentials_not_allowed": [
        "http://user:pw@example.com/", "http://a@b@c/", "http://@example.com/", "http://host#@evil/",
        "http://:@127.0.0.1/",
    ],
    "url_host_not_allowed": [
        "http://127.0.0.1/", "http://localhost/", "http://localhost./", "http://LOCALHOST", "http://a.localhost/",
        "http://0.0.0.0/", "http://0/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/",
        "http://127.1/", "http://0177.0.0.1/", "http://127.0.0.1./", "http://１２７.0.0.1/", "http://①②⑦.⓪.⓪.①/",
        "http://８.８.８.８/", "http://169.254.169.254/latest", "http://2852039166/", "http://169.254.170.2/",
        "http://metadata.google.internal/", "http://instance-data/", "http://10.0.0.1/", "http://172.16.0.1/",
        "http://192.168.1.1/", "http://100.64.0.1/", "http://224.0.0.1/", "http://255.255.255.255/",
        "http://1.2.3.4.5/", "http://1.2.3/", "http://256.1.1.1/", "http://[::1]/", "http://[::]/",
        "http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/",
        "http://[fe80::1%25lo]/", "http://[fd00:ec2::254]/", "http://[ff02::1]/", "http://[2001:db8::1]/",
        "http://127.0.0.1:9001/2018-06-01/runtime/invocation/next", "http://localhost:2773/secretsmanager/get",
        "http://example.com:22/", "http://example.com:25/", "http://example.com:6379/", "http://example.com:9200/",
        "http://intranet/", "http://printer.local/", "http://127.0.0.1:8082/", "http://localhost:8081/",
    ],
}  # fmt: skip


@pytest.mark.shows("B47", "B49")
@pytest.mark.parametrize(("raw", "canonical"), SAME.items())
@pytest.mark.shows("R263")
def test_a_url_has_one_spelling(raw: str, canonical: str) -> None:
    assert canonical_url(raw, allowed_hosts=ALLOWED) == canonical
    assert canonical_url(canonical, allowed_hosts=ALLOWED) == canonical


@pytest.mark.shows("B31", "B32", "B33", "B34", "B35", "B36", "B37", "B38", "B39", "B44", "B47", "B48", "S10")
@pytest.mark.parametrize(("code", "raw"), [(code, raw) for code, urls in REFUSED.items() for raw in urls])
@pytest.mark.shows("R261")
def test_what_is_not_plainly_public_is_refused(code: str, raw: str) -> None:
    with pytest.raises(CallerError) as caught:
        canonical_url(raw, allowed_hosts=ALLOWED)
    assert (caught.value.code, caught.value.field) == (code, "body.url")


def test_nothing_private_is_allowed_by_default() -> None:
    with pytest.raises(CallerError):
        canonical_url("http://127.0.0.1:8081/x", allowed_hosts=frozenset())


@pytest.mark.parametrize("text", ["127.0.0.1", ":80", "a:b", "a:", "a:123456"])
def test_an_allowed_host_needs_its_port(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_allowed_hosts(text)


def test_an_empty_setting_allows_nothing() -> None:
    assert parse_allowed_hosts(" , ") == frozenset()


def test_the_origin_ends_before_the_path() -> None:
    assert origin("https://example.com/a/b?c=/d") == "https://example.com"
    assert origin("http://[2606:4700::1]:443/") == "http://[2606:4700::1]:443"

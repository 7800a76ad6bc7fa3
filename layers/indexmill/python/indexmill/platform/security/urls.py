"""URLs: their canonical form, whether they may be fetched, and the rates of their sites.

Two parsers that read the same URL differently are how a guard is walked around. So nothing is guessed here:
what is not plainly one URL is refused, and what comes out is ASCII with a single reading.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from types import MappingProxyType
from typing import Final, NoReturn
from urllib.parse import urlsplit

import idna

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.identity import MAX_URL_LENGTH
from indexmill.platform.security.addresses import is_public

FIELD: Final = "body.url"
AllowedHosts = frozenset[tuple[str, int]]

_DEFAULT_PORT: Final = {"http": 80, "https": 443}
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_INVISIBLE: Final = re.compile(
    "[\\x00-\\x20\\x7f-\\xa0\\\\\\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    "\u3000\ufeff\ufff9-\uffff\ud800-\udfff]"
)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_PRIVATE_SUFFIXES: Final = (".localhost", ".local", ".internal", ".localdomain", ".home.arpa", ".onion")
_PRIVATE_NAMES: Final = frozenset({"localhost", "local", "internal", "instance-data"})
_PATH_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&'()*+,;=:@/]")
_QUERY_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&'()*+,;=:@/?]")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def parse_allowed_hosts(text: str) -> AllowedHosts:
    """Read a setting such as "127.0.0.1:8081,[::1]:80": hosts that may be private, each with its port.

    Raises ValueError for an entry without a host or a port.
    """
    pairs = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, port = entry.rpartition(":")
        if not host or _PORT.fullmatch(port) is None:
            raise ValueError(f"not host:port: {entry!r}")
        pairs.append((host.strip("[]").lower(), int(port)))
    return frozenset(pairs)


def canonical_url(raw: str, *, allowed_hosts: AllowedHosts) -> str:
    """Return the one spelling of `raw`, which is canonical itself.

    `allowed_hosts` are (host, port) pairs that may be private or on another port than 80 and 443.
    Raises CallerError with url_invalid, url_scheme_not_allowed, url_credentials_not_allowed or
    url_host_not_allowed; nothing else.
    """
    if not raw or len(raw) > MAX_URL_LENGTH:
        _refuse(ErrorCode.URL_INVALID, f"A URL has 1 to {MAX_URL_LENGTH:,} characters.")
    if _INVISIBLE.search(raw):
        _refuse(ErrorCode.URL_INVALID, "A URL has no spaces, invisible characters or backslashes.")
    scheme, authority, tail = _split(raw)
    host, port = _host_and_port(authority, scheme)
    _vet(host, port, allowed_hosts)
    path, mark, query = tail.partition("#")[0].partition("?")
    shown = f"[{host}]" if ":" in host else host
    if port != _DEFAULT_PORT[scheme]:
        shown = f"{shown}:{port}"
    url = f"{scheme}://{shown}{_clean_path(path)}"
    if mark and query:
        url = f"{url}?{escaped(query)}"
    if len(url) > MAX_URL_LENGTH:
        _refuse(ErrorCode.URL_INVALID, f"A URL has at most {MAX_URL_LENGTH:,} characters once it is encoded.")
    return url


def origin(url: str) -> str:
    """Return scheme, host and port of a canonical URL, for example "https://example.com"."""
    return url[: url.index("/", url.index("://") + 3)]


def escaped(text: str) -> str:
    """Return a path, with or without a query, escaped as in a canonical URL; dots stay as they are."""
    return _QUERY_ESCAPE.sub(_escape, text)


def _split(raw: str) -> tuple[str, str, str]:
    """Return scheme, authority and the rest; credentials end here."""
    found = _SCHEME.match(raw)
    if found is None:
        _refuse(ErrorCode.URL_INVALID, "A URL starts with http:// or https://.")
    scheme = found.group()[:-1].lower()
    if scheme not in _DEFAULT_PORT:
        _refuse(ErrorCode.URL_SCHEME_NOT_ALLOWED, "Only http and https URLs are fetched.")
    rest = raw[found.end() :]
    if not rest.startswith("//"):
        _refuse(ErrorCode.URL_INVALID, "A URL starts with http:// or https://.")
    end = min((at for at in (rest.find(mark, 2) for mark in "/?#") if at >= 0), default=len(rest))
    authority, tail = rest[2:end], rest[end:]
    # Some parsers take "http://host#@other/" to mean the other host.
    if "@" in authority or (tail.startswith("#") and "@" in tail):
        _refuse(ErrorCode.URL_CREDENTIALS_NOT_ALLOWED, "A URL carries no user name and no password.")
    return scheme, authority, tail


def _host_and_port(authority: str, scheme: str) -> tuple[str, int]:
    if authority.startswith("["):
        inside, closed, after = authority[1:].partition("]")
        if not closed or (after and not after.startswith(":")):
            _refuse(ErrorCode.URL_INVALID, "The IPv6 address of the URL is not closed.")
        return _v6(inside), _port(after[1:], scheme)
    name, _, port = authority.partition(":")
    return _name(name), _port(port, scheme)


def _port(text: str, scheme: str) -> int:
    if not text:
        return _DEFAULT_PORT[scheme]
    if _PORT.fullmatch(text) is None or not 0 < int(text) < 65536:
        _refuse(ErrorCode.URL_INVALID, "The port of the URL is not a number from 1 to 65535.")
    return int(text)


def _v6(text: str) -> str:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        _refuse(ErrorCode.URL_INVALID, "The IPv6 address of the URL is not valid.")
    if address.scope_id is not None:
        _refuse(ErrorCode.URL_HOST_NOT_ALLOWED, "An address with a zone is not fetched.")
    return address.compressed


def _name(text: str) -> str:
    """Return the host in ASCII and lower case: a name in A-labels, or a dotted IPv4 address."""
    name = text.lower()
    if not name.isascii():
        name = _mapped(name)
    name = name.removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        _refuse(ErrorCode.URL_INVALID, "The host of the URL is not a valid name.")
    if _NUMBER.fullmatch(labels[-1]):
        # Whatever ends in a number is an address to some resolver; only the plain spelling is one here.
        if not text.isascii() or not _is_plain_v4(name):
            _refuse(
                ErrorCode.URL_HOST_NOT_ALLOWED, "An IPv4 address is written as four plain decimal numbers."
            )
        return name
    for label in labels:
        if label.startswith("xn--") and not _is_a_label(label):
            _refuse(ErrorCode.URL_INVALID, "The host of the URL is not a valid international name.")
    return name


def _mapped(name: str) -> str:
    """Return an international name as A-labels."""
    if len(name) > 253:
        _refuse(ErrorCode.URL_INVALID, "The host of the URL is too long.")
    try:
        mapped = idna.uts46_remap(name, std3_rules=False, transitional=False)
        return ".".join(
            label if label.isascii() else idna.alabel(label).decode("ascii") for label in mapped.split(".")
        )
    except (idna.IDNAError, UnicodeError, IndexError, ValueError):
        _refuse(ErrorCode.URL_INVALID, "The host of the URL is not a valid international name.")


def _is_a_label(label: str) -> bool:
    try:
        return idna.alabel(idna.ulabel(label)).decode("ascii") == label
    except (idna.IDNAError, UnicodeError, IndexError, ValueError):
        return False


def _is_plain_v4(name: str) -> bool:
    try:
        return str(IPv4Address(name)) == name
    except AddressValueError:
        return False


def _vet(host: str, port: int, allowed: AllowedHosts) -> None:
    """Refuse what is not public by its spelling alone; names are vetted again when they are resolved."""
    if (host, port) in allowed:
        return
    if port not in (80, 443):
        _refuse(ErrorCode.URL_HOST_NOT_ALLOWED, "Only ports 80 and 443 are fetched.")
    literal = ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None
    private = (
        not is_public(host)
        if literal
        else host in _PRIVATE_NAMES or host.endswith(_PRIVATE_SUFFIXES) or "." not in host
    )
    if private:
        _refuse(ErrorCode.URL_HOST_NOT_ALLOWED, "The host of the URL is not on the public internet.")


def _clean_path(path: str) -> str:
    """Return the path encoded one way, without "." and ".." segments."""
    clean = _PATH_ESCAPE.sub(_escape, path) or "/"
    if "/." not in clean:
        return clean
    kept: list[str] = []
    segments = clean.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def _escape(found: re.Match[str]) -> str:
    text = found.group()
    if len(text) == 3:
        char = chr(int(text[1:], 16))
        return char if char in _UNRESERVED else text.upper()
    return "".join(f"%{byte:02X}" for byte in text.encode())


def _refuse(code: ErrorCode, message: str) -> NoReturn:
    raise CallerError(code, message, field=FIELD)


_RATE_OF_HOST: Final = re.compile(
    r"(?P<host>[^=\s]+)=(?:(?P<rate>[0-9]{1,6}(?:[.][0-9]{1,6})?)(?::(?P<burst>[0-9]{1,6}))?|unlimited)"
)
_DEFAULT_PORTS: Final = (None, 80, 443)


@dataclass(frozen=True, slots=True)
class DomainRate:
    """Rate of one site."""

    per_second: float
    burst: int
    """Requests that may be sent at once when the site was left alone before; no more are in flight
    together."""

    @property
    def interval_s(self) -> float:
        """Return the seconds from one request to the next."""
        return 1 / self.per_second


DEFAULT_RATE: Final = DomainRate(1.0, 3)


@dataclass(frozen=True, slots=True)
class DomainRates:
    """Rates by host; None is no limit."""

    default: DomainRate | None = None
    hosts: Mapping[str, DomainRate | None] = field(default_factory=lambda: MappingProxyType({}))
    """By host, by host:port, and by "*.example.com" for every host below example.com."""

    @classmethod
    def parse(cls, text: str) -> DomainRates:
        """Read a setting such as "*=1:3,example.com=5:10,*.example.org=0.2,127.0.0.1=unlimited".

        An entry is HOST=RATE[:BURST] or HOST=unlimited, "*" every other host; without it that is
        `DEFAULT_RATE`. Raises ValueError.
        """
        hosts: dict[str, DomainRate | None] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            found = _RATE_OF_HOST.fullmatch(entry)
            if found is None or (found["rate"] is not None and float(found["rate"]) == 0):
                raise ValueError(f"not HOST=RATE[:BURST] or HOST=unlimited: {entry!r}")
            hosts[found["host"].lower()] = (
                None
                if found["rate"] is None
                else DomainRate(float(found["rate"]), max(1, int(found["burst"] or 1)))
            )
        return cls(hosts.pop("*", DEFAULT_RATE), hosts)

    @property
    def is_limited(self) -> bool:
        """Return whether any site has a limit."""
        return self.default is not None or any(self.hosts.values())

    def of(self, site: str) -> DomainRate | None:
        """Return the rate of a site: that of host and port, else of the host, else of a domain above it."""
        host = urlsplit(f"//{site}").hostname or site
        for name in (site, host):
            if name in self.hosts:
                return self.hosts[name]
        above = host
        while "." in above:
            above = above.partition(".")[2]
            if f"*.{above}" in self.hosts:
                return self.hosts[f"*.{above}"]
        return self.default


def site_of(url: str) -> str:
    """Return the site of a canonical URL: its host, with a port that is neither 80 nor 443.

    http and https of a host are one site, which has one pace.
    """
    parts = urlsplit(url)
    return (parts.hostname or "") if parts.port in _DEFAULT_PORTS else parts.netloc

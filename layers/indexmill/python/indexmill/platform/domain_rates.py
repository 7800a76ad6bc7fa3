"""Rates of sites: how many requests a host gets in a second, and how many at once after a pause."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

_ENTRY: Final = re.compile(
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


DEFAULT: Final = DomainRate(1.0, 3)


@dataclass(frozen=True, slots=True)
class DomainRates:
    """Rates by host; None is no limit."""

    default: DomainRate | None = None
    hosts: Mapping[str, DomainRate | None] = field(default_factory=lambda: MappingProxyType({}))
    """By host, by host:port, and by "*.example.com" for every host below example.com."""

    @classmethod
    def parse(cls, text: str) -> DomainRates:
        """Read a setting such as "*=1:3,example.com=5:10,*.example.org=0.2,127.0.0.1=unlimited".

        An entry is HOST=RATE[:BURST] or HOST=unlimited, "*" every other host; without it that is `DEFAULT`.
        Raises ValueError.
        """
        hosts: dict[str, DomainRate | None] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            found = _ENTRY.fullmatch(entry)
            if found is None or (found["rate"] is not None and float(found["rate"]) == 0):
                raise ValueError(f"not HOST=RATE[:BURST] or HOST=unlimited: {entry!r}")
            hosts[found["host"].lower()] = (
                None
                if found["rate"] is None
                else DomainRate(float(found["rate"]), max(1, int(found["burst"] or 1)))
            )
        return cls(hosts.pop("*", DEFAULT), hosts)

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

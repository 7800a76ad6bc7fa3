"""Rules of a robots.txt by RFC 9309, with what Google's parser forgives, and of a page; no requests.

A line names a field and a value; its colon may be missing. A group is one or more User-agent lines and the
rules up to the next User-agent line; the groups of one agent count as one. The longest pattern that matches a
path decides; Allow wins over Disallow of the same length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from indexmill.platform.security.urls import escaped

_MAX_LINE: Final = 16_663
_SHOWN: Final = 200
"""Characters of a line that an error shows."""
_AGENT: Final = frozenset({"user-agent", "useragent", "user agent"})
_DISALLOW: Final = frozenset({"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"})
_AGENT_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-")
_VALUED: Final = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_BOM: Final = b"\xef\xbb\xbf"
_INDEX: Final = "/index.htm"


def rules_for(agent: str, body: bytes) -> str:
    """Return the lines of a robots.txt that concern `agent`: those of its own groups, else those of "*".

    One per line: "Allow: /path", "Disallow: /path" and "Crawl-delay: 5". Linear in the size of `body`.
    """
    wanted = agent.lower()
    found: dict[str, list[str]] = {}
    current: set[str] = set()
    in_rules = False
    for name, value in _fields(body):
        if name in _AGENT:
            if in_rules:
                current, in_rules = set(), False
            token = _token(value)
            if token in (wanted, "*"):
                current.add(token)
                found.setdefault(token, [])
        elif name == "allow" or name in _DISALLOW:
            in_rules = True
            if value:
                _add(found, current, f"{'Allow' if name == 'allow' else 'Disallow'}: {value}")
        elif name == "crawl-delay":
            # RFC 9309 knows no such line, so it does not end the list of agents.
            _add(found, current, f"Crawl-delay: {value}")
    return "\n".join(found.get(wanted, found.get("*", [])))


def _add(found: dict[str, list[str]], agents: set[str], line: str) -> None:
    for agent in agents:
        found[agent].append(line)


def _fields(body: bytes) -> list[tuple[str, str]]:
    """Return name, in lower case, and value of each line that has them."""
    for byte in _BOM:
        if not body.startswith(bytes([byte])):
            break
        body = body[1:]
    fields = []
    for raw in body.replace(b"\r", b"\n").split(b"\n"):
        line = raw[:_MAX_LINE].decode("utf-8", "replace").partition("#")[0].strip()
        name, colon, value = line.partition(":")
        if not colon:
            words = line.split(maxsplit=2)
            if len(words) != 2:
                continue
            name, value = words
        fields.append((name.strip().lower(), value.strip()))
    return fields


def _token(value: str) -> str:
    """Return the agent that a User-agent line names, in lower case: "*", or up to the first odd character."""
    if value == "*" or (value.startswith("*") and value[1].isspace()):
        return "*"
    end = next((at for at, char in enumerate(value) if char not in _AGENT_CHARS), len(value))
    return value[:end].lower()


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: str
    """Escaped like the path of a canonical URL."""
    allows: bool
    line: str

    def matches(self, path: str) -> bool:
        anchored = self.pattern.endswith("$")
        first, *pieces = self.pattern.removesuffix("$").split("*")
        if not path.startswith(first):
            return False
        at, end = len(first), len(path)
        if anchored:
            if not pieces:
                return at == end
            last = pieces.pop()
            if not path.endswith(last):
                return False
            end -= len(last)
        for piece in pieces:
            at = path.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return at <= end


class Rules:
    """The rules of one origin that concern one agent."""

    def __init__(self, text: str) -> None:
        """`text` is what `rules_for` returned."""
        rules: list[_Rule] = []
        delays: list[float] = []
        for line in filter(None, text.split("\n")):
            name, _, value = line.partition(": ")
            if name == "Crawl-delay":
                delays.append(_seconds(value))
                continue
            allows = name == "Allow"
            rules.append(_Rule(escaped(value), allows, line))
            folder, slash, file = value.rpartition("/")
            if allows and f"{slash}{file}".startswith(_INDEX):
                rules.append(_Rule(escaped(f"{folder}/") + "$", allows, line))
        rules.sort(key=lambda rule: (-len(rule.pattern), not rule.allows))
        self._rules = rules
        self.delay_s = max(delays, default=0.0)
        """Seconds that the site wants between two requests; 0.0 when it names none."""

    def refusing(self, path: str) -> str | None:
        """Return the line that refuses `path`, path and query of a canonical URL; None when it is allowed."""
        if path == "/robots.txt":
            return None
        for rule in self._rules:
            if rule.matches(path):
                return None if rule.allows else rule.line[:_SHOWN]
        return None


def noindex_rule(agent: str, rules: Iterable[str]) -> str | None:
    """Return the first of `rules`, in the form of X-Robots-Tag, by which `agent` must not index a page."""
    return _first_with({"noindex", "none"}, agent, rules)


def nofollow_rule(agent: str, rules: Iterable[str]) -> str | None:
    """Return the first of `rules` by which `agent` must not follow the links of a page."""
    return _first_with({"nofollow", "none"}, agent, rules)


def _first_with(values: set[str], agent: str, rules: Iterable[str]) -> str | None:
    for rule in rules:
        concerns_us = True
        for part in rule.lower().split(","):
            name, colon, value = part.partition(":")
            if colon and name.strip() not in _VALUED:
                # An agent's name, for this value and those after it.
                concerns_us = name.strip() in ("*", "robots", agent.lower())
            else:
                value = part
            if concerns_us and value.strip() in values:
                return rule[:_SHOWN]
    return None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0

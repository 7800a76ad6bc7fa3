"""robots.txt and a page's own rules, by RFC 9309 with what Google's parser forgives; cached for a day.

A robots.txt that cannot be read disallows everything for a while, unless an old copy is known, which then
serves until the site answers again.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from indexmill.contracts.errors import (
    UNREACHABLE,
    DomainBusy,
    ErrorCode,
    IndexmillError,
    failure,
)
from indexmill.platform.security.urls import escaped, origin, site_of
from indexmill.platform.time import Clock
from indexmill.scraper.ports import Fetcher, NameNotFound
from indexmill.scraper.rate_limit import JobCanceled, PageFetch
from indexmill.scraper.token_bucket import KnownRobots, RobotsCache

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


MAX_ROBOTS_BYTES: Final = 500 * 1024
MAX_CRAWL_DELAY_S: Final = 60.0
_FRESH_S: Final = 86_400
_KEPT_S: Final = 7 * 86_400
"""After this long, a copy no longer serves for a robots.txt that cannot be read."""
_UNAVAILABLE_S: Final = 15
"""How long a robots.txt that could not be read is left alone, when the site does not say."""
_LONGEST_UNAVAILABLE_S: Final = 600
_ORIGINS_IN_MEMORY: Final = 256
_SLOW_PARSE_BYTES: Final = 32_768
_CLIENT_ERROR: Final = re.compile(r"http_4\d\d")
# The site itself is out of reach: its own code says more than that of robots.txt.
_SITES_OWN: Final = UNREACHABLE | {ErrorCode.URL_HOST_NOT_ALLOWED}


@dataclass(frozen=True, slots=True)
class _Parsed:
    rules: Rules | None
    """None: they could not be read."""
    fresh_until: float


class Robots:
    """Answers for one user agent. The rules of the last origins stay in memory, before the shared cache."""

    def __init__(
        self,
        fetcher: Fetcher,
        cache: RobotsCache,
        clock: Clock,
        *,
        user_agent: str,
        max_delay_s: float = MAX_CRAWL_DELAY_S,
    ) -> None:
        """`user_agent` is the header; the part before its "/" is the name that rules address."""
        self._fetcher = fetcher
        self._cache = cache
        self._clock = clock
        self._agent = user_agent.partition("/")[0].strip()
        self._max_delay_s = max_delay_s
        self._memory: OrderedDict[str, _Parsed] = OrderedDict()
        self._loading: dict[str, asyncio.Task[_Parsed]] = {}

    async def check(self, url: str, fetch: PageFetch) -> float:
        """Return the seconds that the site wants between two requests, when it allows `url`.

        `url` is canonical. The seconds are capped; 0.0 when the site names none. A request for the rules is
        one of the `fetch`. Raises PermanentError(robots_disallowed) with the line,
        TransientError(robots_unavailable), DomainBusy and the error of a site that cannot be reached.
        """
        site = origin(url)
        known = self._memory.get(site)
        if known is None or known.fresh_until <= self._now():
            known = await self._load_once(site, fetch)
        if known.rules is None:
            left = math.ceil(known.fresh_until - self._now())
            raise failure(ErrorCode.ROBOTS_UNAVAILABLE, retry_after=max(1, left))
        line = known.rules.refusing(url[len(site) :])
        if line is not None:
            code = ErrorCode.ROBOTS_DISALLOWED
            raise failure(code, f'{code.message}: "{line}"')
        return min(known.rules.delay_s, self._max_delay_s)

    def check_page(self, rules: Sequence[str], where: str) -> None:
        """Return when a page with these `rules`, in the form of X-Robots-Tag, may be indexed.

        Raises PermanentError(robots_noindex) with the rule and `where` it was.
        """
        rule = noindex_rule(self._agent, rules)
        if rule is not None:
            code = ErrorCode.ROBOTS_NOINDEX
            raise failure(code, f'{code.message} ({where}: "{rule}")')

    def nofollow(self, rules: Sequence[str]) -> bool:
        """Return whether a page with these `rules` asks that its links be left alone."""
        return nofollow_rule(self._agent, rules) is not None

    async def _load_once(self, site: str, fetch: PageFetch) -> _Parsed:
        """Load the rules of `site`; pages of one batch wait for the same request."""
        loading = self._loading.get(site)
        own = loading is None or loading.get_loop() is not asyncio.get_running_loop()
        if loading is None or own:
            loading = asyncio.create_task(self._load(site, fetch))
            self._loading[site] = loading
            loading.add_done_callback(lambda task: self._loaded(site, task))
        try:
            return await asyncio.shield(loading)
        except JobCanceled:
            if own:
                raise
            # It was another page's job.
            return await self._load_once(site, fetch)
        except DomainBusy as busy:
            # Each page has an error of its own; where the rules were redirected to is no page.
            raise busy.copy() from None

    def _loaded(self, site: str, task: asyncio.Task[_Parsed]) -> None:
        if self._loading.get(site) is task:
            del self._loading[site]
        if task.cancelled() or task.exception() is not None:
            return
        self._memory[site] = task.result()
        self._memory.move_to_end(site)
        while len(self._memory) > _ORIGINS_IN_MEMORY:
            self._memory.popitem(last=False)

    async def _load(self, site: str, fetch: PageFetch) -> _Parsed:
        known = await asyncio.to_thread(self._cache.get, site)
        if known is None or known.fresh_until <= self._now():
            known = await self._ask(site, known, fetch)
            await asyncio.to_thread(self._cache.put, site, known)
        return _Parsed(None if known.rules is None else Rules(known.rules), known.fresh_until)

    async def _ask(self, site: str, old: KnownRobots | None, fetch: PageFetch) -> KnownRobots:
        """Return what the site answers now, or `old` for a while longer when it does not."""
        url = f"{site}/robots.txt"

        async def before(hop: str) -> None:
            # Within its site a redirect takes no turn: with a burst of one it could never be followed.
            if site_of(hop) != site_of(url):
                await fetch.acquire(hop)
            else:
                await fetch.check()

        try:
            await fetch.acquire(url)
            answer = await self._fetcher.fetch(
                url, deadline=fetch.deadline, cut_at=MAX_ROBOTS_BYTES, before_hop=before, on_send=fetch.sends
            )
        except (DomainBusy, JobCanceled):
            raise
        except IndexmillError as error:
            fetch.end(error)
            if _states_no_rules(error):
                return self._read("")
            return self._unread(error, old)
        if len(answer.body) > _SLOW_PARSE_BYTES:
            return self._read(await asyncio.to_thread(rules_for, self._agent, answer.body))
        return self._read(rules_for(self._agent, answer.body))

    def _read(self, rules: str) -> KnownRobots:
        return KnownRobots(rules, self._now() + _FRESH_S, self._now() + _KEPT_S)

    def _unread(self, error: IndexmillError, old: KnownRobots | None) -> KnownRobots:
        """Return what to go by after `error`; raise it when it is the site's and no old copy serves."""
        wait_s = min(error.retry_after or _UNAVAILABLE_S, _LONGEST_UNAVAILABLE_S)
        until = self._now() + wait_s
        if isinstance(error, NameNotFound):
            raise error
        if error.retryable and old is not None and old.rules is not None and old.kept_until > self._now():
            return replace(old, fresh_until=until)
        if error.code in _SITES_OWN:
            raise error
        if error.code == ErrorCode.DEADLINE_EXCEEDED:
            # There may have been too little time left for any site: nothing to remember.
            raise failure(ErrorCode.ROBOTS_UNAVAILABLE) from error
        return KnownRobots(None, until, until)

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _states_no_rules(error: IndexmillError) -> bool:
    """Return whether the answer means that there is no robots.txt: 4xx but 429, or redirects without end."""
    if error.code == ErrorCode.TOO_MANY_REDIRECTS:
        return True
    return error.code != "http_429" and _CLIENT_ERROR.fullmatch(error.code) is not None

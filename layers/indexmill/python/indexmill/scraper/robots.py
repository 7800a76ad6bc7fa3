"""robots.txt: whether a page may be fetched; the rules are cached for a day."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from robots import RobotsParser
from robots.parser import TokenType, gen_tokens

from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError
from indexmill.platform.security.urls import origin
from indexmill.platform.time.clock import Clock
from indexmill.scraper.classify import failure
from indexmill.scraper.ports import Fetcher, KnownRobots, RobotsCache

MAX_ROBOTS_BYTES: Final = 500 * 1024
_TTL_S: Final = 86_400
_ORIGINS_IN_MEMORY: Final = 256
_MAX_LINE: Final = 2048
_SLOW_PARSE_BYTES: Final = 32_768
# The site itself is out of reach: its own code says more than that of robots.txt.
_SITE_UNREACHABLE: Final = frozenset(
    {
        ErrorCode.CONNECTION_REFUSED,
        ErrorCode.CONNECTION_ERROR,
        ErrorCode.CONNECTION_TIMEOUT,
        ErrorCode.DNS_ERROR,
        ErrorCode.TLS_ERROR,
        ErrorCode.URL_HOST_NOT_ALLOWED,
    }
)


def rules_for(agent: str, text: str) -> str:
    """Return the rules of `text` that concern `agent`: those of its own groups, else those of "*".

    One line per rule. Blanks are folded and over-long lines dropped before the parser sees them, whose
    patterns are slow on both; groups of one agent are joined here, which costs the parser quadratic time.
    """
    lines = (" ".join(line.partition("#")[0].split()) for line in text.lstrip("\ufeff").splitlines())
    short = (line for line in lines if line and len(line) <= _MAX_LINE)
    wanted = agent.lower()
    rules: dict[str, list[str]] = {}
    current: set[str] = set()
    in_rules = False
    tokenize: Any = gen_tokens
    for token in tokenize(lambda source: source, short):
        if token.type is TokenType.AGENT:
            if in_rules:
                current, in_rules = set(), False
            current.add(token.value.lower())
            rules.setdefault(token.value.lower(), [])
        elif token.type in (TokenType.ALLOW, TokenType.DISALLOW):
            in_rules = True
            if token.value:
                rule = f"{'Allow' if token.type is TokenType.ALLOW else 'Disallow'}: {token.value}"
                for name in current & {wanted, "*"}:
                    rules[name].append(rule)
    return "\n".join(rules.get(wanted, rules.get("*", [])))


@dataclass(frozen=True, slots=True)
class _Parsed:
    parser: RobotsParser | None
    """None: everything is allowed."""
    expires_at: float


class Robots:
    """Answers for one user agent. The rules of the last origins stay in memory, before the shared cache."""

    def __init__(self, fetcher: Fetcher, cache: RobotsCache, clock: Clock, *, user_agent: str) -> None:
        """`user_agent` is the header; the part before its "/" is the name that rules address."""
        self._fetcher = fetcher
        self._cache = cache
        self._clock = clock
        self._agent = user_agent.partition("/")[0].strip()
        self._memory: OrderedDict[str, _Parsed] = OrderedDict()
        self._loading: dict[str, asyncio.Task[_Parsed]] = {}

    async def check(self, url: str, *, deadline: float) -> None:
        """Return when `url`, which is canonical, may be fetched.

        Raises PermanentError(robots_disallowed), TransientError(robots_unavailable), or what kept the site
        itself from being reached.
        """
        site = origin(url)
        known = self._memory.get(site)
        if known is None or known.expires_at <= self._now():
            known = await self._load_once(site, deadline)
        if known.parser is not None and not known.parser.can_fetch(self._agent, url):
            raise failure(ErrorCode.ROBOTS_DISALLOWED)

    async def _load_once(self, site: str, deadline: float) -> _Parsed:
        """Load the rules of `site`; pages of one batch wait for the same request."""
        loading = self._loading.get(site)
        if loading is None or loading.get_loop() is not asyncio.get_running_loop():
            loading = asyncio.create_task(self._load(site, deadline))
            self._loading[site] = loading
            loading.add_done_callback(lambda task: self._loaded(site, task))
        return await asyncio.shield(loading)

    def _loaded(self, site: str, task: asyncio.Task[_Parsed]) -> None:
        if self._loading.get(site) is task:
            del self._loading[site]
        if task.cancelled() or task.exception() is not None:
            return
        self._memory[site] = task.result()
        self._memory.move_to_end(site)
        while len(self._memory) > _ORIGINS_IN_MEMORY:
            self._memory.popitem(last=False)

    async def _load(self, site: str, deadline: float) -> _Parsed:
        known = await asyncio.to_thread(self._cache.get, site)
        if known is None or known.expires_at <= self._now():
            known = KnownRobots(await self._ask(site, deadline), self._now() + _TTL_S)
            await asyncio.to_thread(self._cache.put, site, known)
        if not known.rules:
            return _Parsed(None, known.expires_at)
        parser = RobotsParser.from_string(f"User-agent: *\n{known.rules}\n")
        return _Parsed(parser, known.expires_at)

    async def _ask(self, site: str, deadline: float) -> str:
        """Return our rules; "" when the site has none."""
        try:
            answer = await self._fetcher.fetch(
                f"{site}/robots.txt", deadline=deadline, max_bytes=MAX_ROBOTS_BYTES, truncate=True
            )
        except IndexmillError as error:
            if error.code in _SITE_UNREACHABLE:
                raise
            if not error.retryable:
                return ""  # gone, forbidden, redirected in circles: the site states no rules
            unavailable = failure(ErrorCode.ROBOTS_UNAVAILABLE)
            raise TransientError(
                unavailable.code, unavailable.message, retry_after=error.retry_after
            ) from error
        text = answer.body.decode("utf-8", "replace")
        if len(answer.body) > _SLOW_PARSE_BYTES:
            return await asyncio.to_thread(rules_for, self._agent, text)
        return rules_for(self._agent, text)

    def _now(self) -> float:
        return self._clock.now().timestamp()

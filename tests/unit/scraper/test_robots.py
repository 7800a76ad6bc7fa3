"""May we fetch this page?"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import pytest

from indexmill.contracts.errors import ErrorCode, IndexmillError, PermanentError, TransientError, failure
from indexmill.scraper.adapters.answer import damaged, status_failure
from indexmill.scraper.robots import Robots, Rules, rules_for
from tests.twins.clock import FrozenClock
from tests.twins.fetcher import InMemoryFetcher, InMemoryRobotsCache
from tests.twins.state_table import unlimited_pace

AGENT = "IndexmillBot/1.0 (test)"
SITE = "https://example.com"
FETCH = unlimited_pace(FrozenClock()).page(2000.0)
ROBOTS = f"{SITE}/robots.txt"
RULES = "User-agent: *\nDisallow: /a"


@dataclass
class Harness:
    """A site, a cache, a clock and who asks."""

    fetcher: InMemoryFetcher
    cache: InMemoryRobotsCache = field(default_factory=InMemoryRobotsCache)
    clock: FrozenClock = field(default_factory=FrozenClock)

    def __post_init__(self) -> None:
        self.robots = Robots(self.fetcher, self.cache, self.clock, user_agent=AGENT)


def harness_with(answer: str | Exception) -> Harness:
    return Harness(InMemoryFetcher({ROBOTS: answer}))


async def allowed(robots: Robots, path: str) -> bool:
    try:
        await robots.check(f"{SITE}{path}", FETCH)
    except PermanentError as error:
        if error.code != ErrorCode.ROBOTS_DISALLOWED:
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("User-agent: *\nDisallow: /private", "/private/x", False),
        ("User-agent: *\nDisallow: /private", "/public", True),
        ("User-agent: *\nDisallow: /\nAllow: /ok", "/ok/x", True),
        ("User-agent: *\nDisallow: /*.pdf$", "/a/b.pdf", False),
        ("User-agent: *\nDisallow: /*.pdf$", "/a/b.pdfx", True),
        ("User-agent: indexmillbot\nDisallow: /\n\nUser-agent: *\nAllow: /", "/x", False),
        ("User-agent: *\nDisallow: /\n\nUser-agent: IndexmillBot\nDisallow:", "/x", True),
        ("User-agent: other\nDisallow: /", "/x", True),
        ("User-agent: other\nUser-agent: IndexmillBot\nDisallow: /a", "/a", False),
        (f"{RULES}\nUser-agent: other\nDisallow: /b\nUser-agent: *\nDisallow: /c", "/c", False),
        (f"{RULES}\nUser-agent: other\nDisallow: /b\nUser-agent: *\nDisallow: /c", "/b", True),
        ("\ufeffUser-agent: *\r\nDisallow: /a # comment\r\n", "/a", False),
        ("user-agent:*\ndisallow:/a", "/a", False),
        ("User-agent: *\nDisallow: /a[b]|c", "/a%5Bb%5D%7Cc", False),
        ("User-agent: *\nDisallow: /a b", "/a%20b", False),
        ("User-agent: *\nDisallow: /", "/robots.txt", True),
        ("<html>not robots</html>", "/x", True),
        ("\0\1\2binary", "/x", True),
        ("", "/x", True),
    ],
)
async def test_the_rules_are_obeyed(text: str, path: str, expected: bool) -> None:
    assert await allowed(harness_with(text).robots, path) is expected


@pytest.mark.fault("F56")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 410, 425, 451])
async def test_a_site_that_states_no_rules_allows_everything(status: int) -> None:
    assert await allowed(harness_with(status_failure(status)).robots, "/x")


async def test_a_redirect_in_circles_states_no_rules() -> None:
    assert await allowed(harness_with(failure(ErrorCode.TOO_MANY_REDIRECTS)).robots, "/x")


UNREADABLE = [
    status_failure(500),
    status_failure(503, 120),
    status_failure(502, 86_400),
    status_failure(429, 5),
    status_failure(304),
    failure(ErrorCode.READ_TIMEOUT),
    damaged(),
    failure(ErrorCode.UNSUPPORTED_CONTENT_TYPE),
    failure(ErrorCode.CONTENT_BOMB),
    PermanentError(ErrorCode.URL_SCHEME_NOT_ALLOWED, "The page redirects elsewhere"),
]


@pytest.mark.fault("F56")
@pytest.mark.shows("B62")
@pytest.mark.parametrize("error", UNREADABLE, ids=repr)
async def test_rules_that_cannot_be_read_are_waited_for(error: IndexmillError) -> None:
    here = harness_with(error)
    wait_s = min(error.retry_after or 15, 600)
    with pytest.raises(TransientError) as caught:
        await allowed(here.robots, "/x")
    assert (caught.value.code, caught.value.retry_after) == ("robots_unavailable", wait_s)
    here.fetcher.pages[ROBOTS] = RULES
    here.clock.tick(wait_s - 1)
    other = Robots(here.fetcher, here.cache, here.clock, user_agent=AGENT)
    with pytest.raises(TransientError) as caught:
        await allowed(other, "/x")
    assert caught.value.retry_after == 1
    assert here.fetcher.requested == [ROBOTS]
    here.clock.tick(1)
    assert await allowed(here.robots, "/x")
    assert not await allowed(here.robots, "/a")


async def test_too_little_time_is_not_remembered() -> None:
    here = harness_with(failure(ErrorCode.DEADLINE_EXCEEDED))
    with pytest.raises(TransientError) as caught:
        await allowed(here.robots, "/x")
    assert caught.value.code == "robots_unavailable"
    here.fetcher.pages[ROBOTS] = ""
    assert await allowed(here.robots, "/x")


@pytest.mark.fault("F56")
@pytest.mark.parametrize("error", [status_failure(503), failure(ErrorCode.CONNECTION_REFUSED)], ids=str)
async def test_an_old_copy_serves_while_the_site_fails(error: IndexmillError) -> None:
    here = harness_with(RULES)
    assert not await allowed(here.robots, "/a")
    here.fetcher.pages[ROBOTS] = error
    here.clock.tick(6 * 86_400)
    for robots in (here.robots, Robots(here.fetcher, here.cache, here.clock, user_agent=AGENT)):
        assert not await allowed(robots, "/a")
        assert await allowed(robots, "/b")
    assert here.fetcher.requested == [ROBOTS] * 2
    here.clock.tick(86_400)
    with pytest.raises(TransientError):
        await allowed(here.robots, "/b")


async def test_new_rules_replace_an_old_copy() -> None:
    here = harness_with(RULES)
    assert await allowed(here.robots, "/b")
    here.fetcher.pages[ROBOTS] = status_failure(503)
    here.clock.tick(86_400)
    assert await allowed(here.robots, "/b")
    here.fetcher.pages[ROBOTS] = "User-agent: *\nDisallow: /b"
    here.clock.tick(15)
    assert not await allowed(here.robots, "/b")


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        (RULES, "/a/b", "Disallow: /a"),
        ("User-agent: *\nDisallow: /\nAllow: /ok", "/x", "Disallow: /"),
        (f"{RULES}\n\nUser-agent: IndexmillBot\nDisallow: /b*c$", "/b/c", "Disallow: /b*c$"),
    ],
)
async def test_the_answer_names_the_line_that_refuses(text: str, path: str, line: str) -> None:
    with pytest.raises(PermanentError) as caught:
        await harness_with(text).robots.check(f"{SITE}{path}", FETCH)
    assert caught.value.message.endswith(f': "{line}"')


async def test_a_line_is_shown_up_to_a_limit() -> None:
    with pytest.raises(PermanentError) as caught:
        await harness_with(f"User-agent: *\nDisallow: /{'*' * 10_000}").robots.check(f"{SITE}/", FETCH)
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("text", "delay_s"),
    [
        ("User-agent: *\nCrawl-delay: 5", 5.0),
        ("User-agent: *\nCrawl-delay: 0.5\nDisallow: /a", 0.5),
        ("User-agent: *\nDisallow: /a\ncrawl-delay: 2\ncrawl-delay: 3", 3.0),
        ("User-agent: *\nCrawl-delay: 86400", 60.0),
        ("User-agent: *\nCrawl-delay: 5\n\nUser-agent: IndexmillBot\nCrawl-delay: 1", 1.0),
        ("User-agent: *\nCrawl-delay: 5\n\nUser-agent: IndexmillBot\nDisallow: /a", 0.0),
        ("User-agent: other\nCrawl-delay: 5\n\nUser-agent: *\nDisallow: /a", 0.0),
        ("Crawl-delay: 5", 0.0),
        ("", 0.0),
        *((f"User-agent: *\nCrawl-delay: {bad}", 0.0) for bad in ("", "-1", "soon", "nan", "inf", "1e999")),
    ],
)
async def test_the_wanted_delay_is_returned_and_capped(text: str, delay_s: float) -> None:
    here = harness_with(text)
    assert await here.robots.check(f"{SITE}/x", FETCH) == delay_s
    other = Robots(here.fetcher, here.cache, here.clock, user_agent=AGENT, max_delay_s=0.25)
    assert await other.check(f"{SITE}/x", FETCH) == min(delay_s, 0.25)


@pytest.mark.parametrize(
    "code", ["connection_refused", "connection_timeout", "dns_error", "tls_error", "url_host_not_allowed"]
)
async def test_an_unreachable_site_is_its_own_error(code: str) -> None:
    with pytest.raises(IndexmillError) as caught:
        await harness_with(failure(code)).robots.check(f"{SITE}/x", FETCH)
    assert caught.value.code == code


async def test_a_site_is_asked_once_a_day() -> None:
    here = harness_with(RULES)
    assert not await allowed(here.robots, "/a")
    assert await allowed(here.robots, "/b")
    assert here.fetcher.requested == [ROBOTS]
    assert list(here.cache.known) == [SITE]
    here.clock.tick(86_399)
    assert not await allowed(here.robots, "/a")
    here.fetcher.pages[ROBOTS] = ""
    here.clock.tick(2)
    assert await allowed(here.robots, "/a")
    assert here.fetcher.requested == [ROBOTS, ROBOTS]


async def test_another_process_finds_the_rules_in_the_cache() -> None:
    here = harness_with(RULES)
    await allowed(here.robots, "/")
    other = Robots(here.fetcher, here.cache, here.clock, user_agent=AGENT)
    assert not await allowed(other, "/a")
    assert len(here.fetcher.requested) == 1


async def test_a_batch_asks_a_site_once() -> None:
    here = harness_with(RULES)
    answers = await asyncio.gather(*(allowed(here.robots, path) for path in ("/a", "/b", "/c")))
    assert answers == [False, True, True]
    assert here.fetcher.requested == [ROBOTS]


@pytest.mark.fault("F56")
async def test_only_the_first_500_kib_count() -> None:
    padding = "# padding\n" * 60_000
    here = harness_with(f"User-agent: *\nDisallow: /early\n{padding}Disallow: /late")
    assert not await allowed(here.robots, "/early")
    assert await allowed(here.robots, "/late")


HOSTILE = {
    "stars": "User-agent: *\n" + ("Disallow: /" + "*p/" * 5_000 + "x\n") * 30,
    "short stars": "User-agent: *\n" + "Disallow: *x*\n" * 36_000,
    "blanks in an agent": "User-agent: a" + " " * 400_000 + "s",
    "blanks in a rule": "User-agent: *\nDisallow" + " " * 400_000 + "a b",
    "long lines": ("User-agent: " + "x y " * 500 + "s\n") * 250,
    "repeated groups": "User-agent: *\nDisallow: /p\n" * 18_000,
    "many rules": "User-agent: *\n" + "".join(f"Disallow: /p{at}\n" for at in range(28_000)),
    "many agents": "".join(f"User-agent: a{at}\n" for at in range(28_000)) + "Disallow: /",
}


@pytest.mark.shows("B62")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_rules_take_linear_time(name: str) -> None:
    started = time.process_time()
    rules = Rules(rules_for("IndexmillBot", HOSTILE[name].encode()))
    rules.refusing("/" + "p/" * 1_000)
    assert time.process_time() - started < 2.0

"""No way leads to an address that is not public."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

import httpcore
import pytest

from indexmill.contracts.errors import IndexmillError
from indexmill.contracts.messages import StageResult, read
from indexmill.platform.consumer.deliveries import Done
from indexmill.scraper.adapters.http_fetcher import FetchLimits, HttpFetcher, PinnedBackend, system_resolver
from indexmill.scraper.ports import NameNotFound
from indexmill.scraper.robots import Robots
from indexmill.scraper.worker import ScrapeBatch
from tests.integration.scraper.conftest import LIMITS
from tests.integration.scraper.site import Site, redirect
from tests.support.scraper import ScraperHarness, delivery
from tests.twins.fetcher import InMemoryRobotsCache
from tests.twins.queues import InMemoryQueue

HTML = "<p>Words.</p>"


class Recorder(httpcore.AsyncNetworkBackend):
    """Notes where it was sent, and goes nowhere."""

    def __init__(self, *reachable: str) -> None:
        self.dialled: list[str] = []
        self.reachable = reachable

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.dialled.append(host)
        if host not in self.reachable:
            raise httpcore.ConnectError("unreachable")
        return httpcore.AsyncMockStream([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"])


class Names:
    """A name server; each list of answers is given once, the last repeatedly."""

    def __init__(self, *answers: list[str] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def guarded(names: Names, inner: Recorder) -> HttpFetcher:
    backend = PinnedBackend(frozenset(), resolver=names, inner=inner)
    return HttpFetcher(user_agent="x", limits=LIMITS, backend=backend)


async def failed(fetcher: HttpFetcher, url: str) -> IndexmillError:
    with pytest.raises(IndexmillError) as caught:
        await fetcher.fetch(url, deadline=time.monotonic() + 5)
    await fetcher.close()
    return caught.value


PRIVATE_ANSWERS = [
    ["127.0.0.1"],
    ["93.184.215.14", "10.0.0.1"],
    ["10.0.0.1", "93.184.215.14"],
    ["fd00:ec2::254"],
    ["::ffff:127.0.0.1"],
    ["fe80::1%eth0"],
    ["2606:4700::1", "::1"],
    ["169.254.169.254"],
    ["no address"],
]


@pytest.mark.shows("B40", "S10")
@pytest.mark.parametrize("answers", PRIVATE_ANSWERS, ids=",".join)
async def test_one_private_answer_refuses_the_name(answers: list[str]) -> None:
    inner = Recorder("93.184.215.14")
    error = await failed(guarded(Names(answers), inner), "http://example.com/")
    assert error.code == "url_host_not_allowed"
    assert inner.dialled == []
    assert not any(answer in error.message for answer in answers)


@pytest.mark.shows("B41", "S10")
async def test_the_address_that_was_vetted_is_the_one_that_is_dialled() -> None:
    names, inner = Names(["93.184.215.14"], ["127.0.0.1"]), Recorder("93.184.215.14")
    fetcher = guarded(names, inner)
    page = await fetcher.fetch("http://example.com/", deadline=time.monotonic() + 5)
    assert page.body == b"ok"
    assert (names.asked, inner.dialled) == (["example.com"], ["93.184.215.14"])
    await fetcher.close()


async def test_a_second_connection_is_vetted_again() -> None:
    names, inner = Names(["93.184.215.14"], ["127.0.0.1"]), Recorder()
    fetcher = guarded(names, inner)
    assert (await failed(fetcher, "http://example.com/")).code == "connection_error"
    assert (await failed(fetcher, "http://example.com/")).code == "url_host_not_allowed"
    assert inner.dialled == ["93.184.215.14"]


async def test_the_next_address_is_tried_when_one_is_unavailable() -> None:
    inner = Recorder("93.184.215.15")
    fetcher = guarded(Names(["2606:4700::1", "93.184.215.14", "93.184.215.15"]), inner)
    assert (await fetcher.fetch("http://example.com/", deadline=time.monotonic() + 5)).status == 200
    assert inner.dialled == ["2606:4700::1", "93.184.215.14", "93.184.215.15"]
    await fetcher.close()


@pytest.mark.parametrize("answers", [OSError("no such host"), [], UnicodeError("bad label")])
async def test_a_name_without_an_address_is_a_dns_error(answers: list[str] | Exception) -> None:
    assert (await failed(guarded(Names(answers), Recorder()), "http://example.com/")).code == "dns_error"


async def test_the_systems_resolver_gives_addresses() -> None:
    assert await system_resolver("127.0.0.1", 80) == ["127.0.0.1"]
    assert await system_resolver("::1", 80) == ["::1"]


@pytest.fixture
async def public(canary: Site) -> AsyncIterator[HttpFetcher]:
    """A fetcher as it runs on AWS: nothing private is allowed."""
    made = HttpFetcher(user_agent="x", limits=LIMITS)
    yield made
    await made.close()


@pytest.mark.shows("S10")
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "localhost.", "127.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "0"],
)
async def test_a_private_service_is_not_reached_whatever_it_is_called(
    public: HttpFetcher, canary: Site, host: str
) -> None:
    error = await failed(public, f"http://{host}:{canary.port}/")
    assert canary.connections == 0
    assert error.code in ("url_host_not_allowed", "dns_error", "url_invalid")


@pytest.mark.shows("B45")
async def test_open_and_closed_private_ports_look_the_same(public: HttpFetcher, canary: Site) -> None:
    opened = await failed(public, f"http://127.0.0.1:{canary.port}/")
    closed = await failed(public, "http://127.0.0.1:9/")
    assert (opened.code, opened.message) == (closed.code, closed.message)
    assert "127" not in opened.message
    assert str(canary.port) not in opened.message


@pytest.mark.shows("B42", "S10")
@pytest.mark.parametrize("status", ["301 X", "302 X", "303 X", "307 X", "308 X"])
async def test_a_redirect_to_a_private_service_is_not_followed(
    site: Site, fetcher: HttpFetcher, canary: Site, status: str
) -> None:
    error = await failed(fetcher, site.route("/", redirect(canary.url + "/", status)))
    assert error.code == "url_host_not_allowed"
    assert canary.connections == 0


@pytest.mark.shows("B42", "S10")
@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://169.254.169.254/latest/meta-data/", "url_host_not_allowed"),
        ("//127.0.0.1/", "url_host_not_allowed"),
        ("http://localhost/", "url_host_not_allowed"),
        ("https://10.0.0.1/", "url_host_not_allowed"),
        ("http://[::1]/", "url_host_not_allowed"),
        ("file:///etc/passwd", "url_scheme_not_allowed"),
        ("gopher://x/", "url_scheme_not_allowed"),
        ("http://user:pw@example.com/", "url_credentials_not_allowed"),
        ("http://a\\@127.0.0.1/", "url_invalid"),
        ("http://[broken/", "url_invalid"),
        ("http://[::1/x?token=1", "url_invalid"),
        ("http://a:b:c/", "url_invalid"),
        ("http://a:b/", "url_invalid"),
        ("http://x/\x7f", "url_invalid"),
        ("http://xn--/", "url_invalid"),
        ("http://ü..example/", "url_invalid"),
        ("http://example.com/" + "x" * 10_000, "url_invalid"),
    ],
)
async def test_every_hop_is_vetted(site: Site, fetcher: HttpFetcher, location: str, code: str) -> None:
    error = await failed(fetcher, site.route("/", redirect(location)))
    assert error.code == code
    assert not error.retryable
    assert len(site.paths) == 1, "the site answered: it is not asked again"


async def test_a_private_hop_after_a_good_one_is_refused(
    site: Site, fetcher: HttpFetcher, canary: Site
) -> None:
    site.route("/two", redirect(canary.url))
    error = await failed(fetcher, site.route("/one", redirect("/two")))
    assert error.code == "url_host_not_allowed"
    assert site.paths == ["/one", "/two"]
    assert canary.connections == 0


async def test_five_hops_are_followed_and_the_end_is_reported(site: Site, fetcher: HttpFetcher) -> None:
    for at in range(5):
        site.route(f"/{at}", redirect(f"./{at + 1}#part"))
    site.page("/5", HTML)
    page = await fetcher.fetch(f"{site.url}/0", deadline=time.monotonic() + 5)
    assert page.final_url == f"{site.url}/5"


@pytest.mark.shows("B42")
async def test_six_hops_and_loops_are_too_many(site: Site, fetcher: HttpFetcher) -> None:
    error = await failed(fetcher, site.route("/", redirect("/")))
    assert error.code == "too_many_redirects"
    assert len(site.paths) == 6


async def test_a_redirect_without_a_target_is_its_status(site: Site, fetcher: HttpFetcher) -> None:
    assert (await failed(fetcher, site.route("/", redirect("")))).code == "http_302"


async def test_an_allowed_host_is_allowed_on_its_port_only(fetcher: HttpFetcher, canary: Site) -> None:
    assert (await failed(fetcher, canary.url + "/")).code == "url_host_not_allowed"
    assert canary.connections == 0


UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def looked_up(*answers: list[str] | Exception) -> tuple[IndexmillError, Names, Recorder, float]:
    """Return the error for a name with these answers, with the time between the first two questions."""
    names, inner = Names(*answers), Recorder()
    backend = PinnedBackend(frozenset(), resolver=names, inner=inner)
    fetcher = HttpFetcher(user_agent="x", limits=replace(LIMITS, name_pause_s=0.05), backend=backend)
    began = time.monotonic()
    error = await failed(fetcher, "http://nowhere.example/")
    return error, names, inner, time.monotonic() - began


async def test_a_name_that_does_not_exist_is_looked_up_twice() -> None:
    error, names, inner, took_s = await looked_up(UNKNOWN)
    assert isinstance(error, NameNotFound)
    assert (error.code, len(names.asked), inner.dialled) == ("dns_error", 2, [])
    assert took_s >= 0.05
    assert FetchLimits().name_pause_s == 2.0


@pytest.mark.slow
def test_the_job_of_a_mistyped_name_ends_within_five_seconds() -> None:
    """Its robots.txt is asked for first, and the pause between the two questions is the real one."""
    names, results = Names(UNKNOWN), InMemoryQueue()
    backend = PinnedBackend(frozenset(), resolver=names, inner=Recorder())
    harness = ScraperHarness()
    parts = harness.parts()
    fetcher = HttpFetcher(user_agent="x", backend=backend, clock=harness.clock)
    robots = Robots(fetcher, InMemoryRobotsCache(), harness.clock, user_agent="x")
    made = ScrapeBatch(replace(parts, fetcher=fetcher, robots=robots), results, InMemoryQueue())
    with closing(made) as batch:
        began = time.monotonic()
        assert batch([delivery("/page", url="https://exmaple.example/page")]) == [Done()]
        took_s = time.monotonic() - began
    (result,) = (read(StageResult, body) for body in results.bodies)
    assert result.failure is not None
    assert (result.failure.code, len(names.asked)) == ("dns_error", 2)
    assert 2.0 <= took_s < 5.0


async def test_a_name_that_exists_the_second_time_is_dialled() -> None:
    error, names, inner, _ = await looked_up(UNKNOWN, ["93.184.215.14"])
    assert (error.code, len(names.asked), inner.dialled) == ("connection_error", 2, ["93.184.215.14"])


@pytest.mark.parametrize(
    "other",
    [
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure in name resolution"),
        socket.gaierror(socket.EAI_NODATA, "No address associated with hostname"),
        OSError(socket.EAI_NONAME, "not of the resolver"),
        UnicodeError("label too long"),
        [],
    ],
    ids=["again", "fail", "no data", "os", "idna", "empty"],
)
async def test_every_other_error_of_the_resolver_may_pass(other: list[str] | Exception) -> None:
    error, names, _, _ = await looked_up(other)
    assert (error.code, error.retryable, isinstance(error, NameNotFound)) == ("dns_error", True, False)
    assert len(names.asked) == 1
    later, names, _, _ = await looked_up(UNKNOWN, other)
    assert (isinstance(later, NameNotFound), len(names.asked)) == (False, 2)

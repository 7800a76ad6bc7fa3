"""Pages over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import random
import time
import zlib

import pytest

from indexmill.contracts.errors import IndexmillError, PermanentError, TransientError
from indexmill.scraper.adapters.http_fetcher import FetchLimits, HttpFetcher
from indexmill.scraper.ports import MAX_REDIRECTS, NOT_MODIFIED, Fetched, Validators
from indexmill.scraper.rate_limit import JobCanceled
from tests.integration.scraper.site import Site, answer, redirect, running_site

HTML = "<!doctype html><p>Words.</p>"


async def get(fetcher: HttpFetcher, url: str, *, within_s: float = 5.0) -> Fetched:
    return await fetcher.fetch(url, deadline=time.monotonic() + within_s)


async def failed(fetcher: HttpFetcher, url: str, *, within_s: float = 5.0) -> IndexmillError:
    with pytest.raises(IndexmillError) as caught:
        await get(fetcher, url, within_s=within_s)
    return caught.value


async def test_a_page_arrives_with_what_is_said_of_it(site: Site, fetcher: HttpFetcher) -> None:
    url = site.page("/a?b=c", HTML, 'Text/HTML; Charset="UTF-8"')
    page = await get(fetcher, url)
    assert (page.final_url, page.status, page.body) == (url, 200, HTML.encode())
    assert (page.content_type, page.charset, page.retry_after) == ("text/html", "UTF-8", None)


async def test_a_part_that_was_not_asked_for_is_no_page(site: Site, fetcher: HttpFetcher) -> None:
    url = site.page("/", HTML[:20], status="206 Partial Content", content_range="bytes 0-19/900")
    error = await failed(fetcher, url)
    assert (error.code, isinstance(error, PermanentError)) == ("http_206", True)


@pytest.mark.shows("B46")
async def test_the_request_says_who_asks_and_nothing_more(
    site: Site, fetcher: HttpFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    await get(fetcher, site.page("/", HTML, set_cookie="session=1; Path=/"))
    await get(fetcher, site.url + "/")
    head = site.heads[-1].lower()
    assert "user-agent: indexmillbot/1.0 (test)\r\n" in head
    assert "accept-encoding: gzip\r\n" in head
    assert f"host: 127.0.0.1:{site.port}\r\n" in head
    assert "cookie" not in head
    assert "authorization" not in head


async def test_each_request_is_reported_before_it_is_sent(site: Site, fetcher: HttpFetcher) -> None:
    site.page("/b", HTML)
    site.routes["/a"] = redirect("/b")
    heads: list[int] = []

    async def sends() -> None:
        heads.append(len(site.heads))

    await fetcher.fetch(f"{site.url}/a", deadline=time.monotonic() + 5.0, on_send=sends)
    # Before its head is with the site, and once for each.
    assert heads == [0, 1]


async def test_a_request_that_is_no_longer_wanted_is_not_sent(site: Site, fetcher: HttpFetcher) -> None:
    site.page("/b", HTML)
    site.routes["/a"] = redirect("/b")
    wanted = 0

    async def sends() -> None:
        if len(site.heads) == wanted:
            raise JobCanceled

    for wanted in (0, 1):
        with pytest.raises(JobCanceled):
            await fetcher.fetch(f"{site.url}/a", deadline=time.monotonic() + 5.0, on_send=sends)
        assert len(site.heads) == wanted
    await get(fetcher, f"{site.url}/a")
    assert len(site.heads) == 3


async def test_connections_are_kept_between_pages(site: Site, fetcher: HttpFetcher) -> None:
    url = site.page("/", HTML)
    for _ in range(5):
        await get(fetcher, url)
    assert (len(site.heads), site.connections) == (5, 1)


def test_a_fetcher_outlives_its_event_loop(site: Site) -> None:
    url = site.page("/", HTML)
    fetcher = HttpFetcher(user_agent="x", allowed_hosts=frozenset({site.host}))

    async def once() -> None:
        assert (await get(fetcher, url)).status == 200
        await fetcher.close()

    asyncio.run(once())
    asyncio.run(once())


async def test_a_kept_connection_that_was_closed_is_opened_again(site: Site, fetcher: HttpFetcher) -> None:
    async def once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(HTML))
        await writer.drain()

    url = site.route("/", once)
    for _ in range(3):
        assert (await get(fetcher, url)).body == HTML.encode()


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP"])
async def test_gzip_is_unpacked(site: Site, fetcher: HttpFetcher, encoding: str) -> None:
    url = site.page("/", gzip.compress(HTML.encode()), content_encoding=encoding)
    assert (await get(fetcher, url)).body == HTML.encode()


@pytest.mark.parametrize("encoding", ["deflate", "br", "zstd", "gzip, gzip", "gzip;q=1", "nonsense"])
async def test_other_encodings_are_refused(site: Site, fetcher: HttpFetcher, encoding: str) -> None:
    data = gzip.compress(gzip.compress(bytes(100_000_000)[:3_000_000]))
    error = await failed(fetcher, site.page("/", data, content_encoding=encoding))
    assert (type(error), error.code) == (PermanentError, "unsupported_content_type")
    assert error.message == "The page uses a content encoding other than gzip"


@pytest.mark.shows("S14")
@pytest.mark.fault("F68")
async def test_a_bomb_does_not_go_off(site: Site, fetcher: HttpFetcher) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(100)) + packer.flush()
    started = time.process_time()
    error = await failed(fetcher, site.page("/", bomb, content_encoding="gzip"))
    assert error.code == "content_bomb"
    assert time.process_time() - started < 1.0


async def test_a_page_over_the_limit_is_refused_by_its_announcement(site: Site, fetcher: HttpFetcher) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 10000000000\r\n\r\nx"
    assert (await failed(fetcher, site.route("/", head))).code == "content_too_large"


@pytest.mark.shows("B52")
@pytest.mark.shows("S14")
@pytest.mark.fault("F68")
async def test_an_endless_page_is_cut_off(site: Site, fetcher: HttpFetcher) -> None:
    sent = 0

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        noise = random.Random(1).randbytes(65_536)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + noise + b"\r\n")
            await writer.drain()
            sent += len(noise)

    assert (await failed(fetcher, site.route("/", endless))).code == "content_too_large"
    assert sent < 50_000_000


async def test_a_cut_page_is_what_truncation_asks_for(site: Site, fetcher: HttpFetcher) -> None:
    url = site.page("/", "x" * 5000)
    page = await fetcher.fetch(url, deadline=time.monotonic() + 5, cut_at=100)
    assert page.body == b"x" * 100


@pytest.mark.shows("B53")
async def test_a_drip_feed_meets_the_deadline(site: Site, fetcher: HttpFetcher) -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 1000\r\n\r\n")
        for _piece in range(100):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    started = time.monotonic()
    error = await failed(fetcher, site.route("/", drip), within_s=0.5)
    assert (type(error), error.code) == (TransientError, "deadline_exceeded")
    # Without the deadline it takes 5 s.
    assert 0.4 < time.monotonic() - started < 4.0


async def test_a_silent_site_is_left(site: Site, fetcher: HttpFetcher) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    error = await failed(fetcher, site.route("/", silent))
    assert (type(error), error.code) == (TransientError, "read_timeout")


async def test_a_deadline_that_has_passed_sends_no_request(site: Site, fetcher: HttpFetcher) -> None:
    error = await failed(fetcher, site.page("/", HTML), within_s=-1.0)
    assert error.code == "deadline_exceeded"
    assert site.heads == []


BROKEN = {
    "cut short": b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 1000\r\n\r\nshort",
    "bad chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n",
    "no http": b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
    "nothing": b"",
    "huge headers": b"HTTP/1.1 200 OK\r\n"
    + b"".join(b"x%d: %s\r\n" % (at, b"y" * 60_000) for at in range(9)),
}


@pytest.mark.fault("F54")
@pytest.mark.shows("B54")
@pytest.mark.parametrize("name", BROKEN)
async def test_broken_http_is_a_broken_connection(site: Site, fetcher: HttpFetcher, name: str) -> None:
    async def broken(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(BROKEN[name])
        await writer.drain()

    error = await failed(fetcher, site.route("/", broken))
    assert (type(error), error.code) == (TransientError, "connection_error")


@pytest.mark.shows("B54")
@pytest.mark.parametrize(
    "data", [gzip.compress(HTML.encode())[:-4], b"not packed"], ids=["cut", "not packed"]
)
async def test_a_damaged_packing_is_tried_again(site: Site, fetcher: HttpFetcher, data: bytes) -> None:
    error = await failed(fetcher, site.page("/", data, content_encoding="gzip"))
    assert (type(error), error.code) == (TransientError, "parse_error")


async def test_a_closed_port_refuses(site: Site) -> None:
    with running_site() as gone:
        host = gone.host
    fetcher = HttpFetcher(user_agent="x", allowed_hosts=frozenset({host}))
    error = await failed(fetcher, f"http://{host[0]}:{host[1]}/")
    await fetcher.close()
    assert (type(error), error.code) == (TransientError, "connection_refused")
    assert "127" not in error.message


async def test_a_reset_connection_is_tried_again(site: Site, fetcher: HttpFetcher) -> None:
    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    assert (await failed(fetcher, site.route("/", reset))).code == "connection_error"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, PermanentError) for status in (400, 403, 404, 410)),
        *((status, TransientError) for status in (408, 429, 500, 503)),
    ],
)
async def test_a_status_is_reported_as_it_is(
    site: Site, fetcher: HttpFetcher, status: int, kind: type[IndexmillError]
) -> None:
    error = await failed(fetcher, site.route("/", answer(HTML, status=f"{status} X", retry_after="17")))
    assert (type(error), error.code, error.retry_after) == (kind, f"http_{status}", 17)


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("Fri, 31 Dec 2100 23:59:59 GMT", 2_678_400, 2_678_400),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0, 0),
        ("9" * 50, 2_678_400, 2_678_400),
    ],
)
async def test_a_pause_may_be_a_date(
    site: Site, fetcher: HttpFetcher, header: str, least: int, most: int
) -> None:
    error = await failed(fetcher, site.route("/", answer("", status="503 X", retry_after=header)))
    assert error.retry_after is not None
    assert least <= error.retry_after <= most


@pytest.mark.parametrize("header", ["soon", "-5", "1.5", "²", "Fri, 99 Foo 2100 25:61:61 GMT"])
async def test_a_pause_that_says_nothing_is_none(site: Site, fetcher: HttpFetcher, header: str) -> None:
    error = await failed(
        fetcher,
        site.route(
            "/",
            answer("", status="503 X").replace(
                b"\r\n\r\n", b"\r\nretry-after: " + header.encode() + b"\r\n\r\n"
            ),
        ),
    )
    assert error.retry_after is None


async def test_pages_load_side_by_side(site: Site) -> None:
    all_asked = asyncio.Barrier(10)

    async def slow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(20):
            await all_asked.wait()
        writer.write(answer(HTML, connection="close"))
        await writer.drain()

    url = site.route("/slow", slow)
    fetcher = HttpFetcher(user_agent="x", allowed_hosts=frozenset({site.host}), limits=FetchLimits())
    pages = await asyncio.gather(*(get(fetcher, url) for _ in range(10)))
    await fetcher.close()
    assert [page.body for page in pages] == [HTML.encode()] * 10


def conditions(site: Site) -> dict[str, str]:
    """Return the conditional headers of the last request, by name in lower case."""
    fields = (line.split(": ", 1) for line in site.heads[-1].split("\r\n")[1:] if line)
    return {name.lower(): value for name, value in fields if name.lower().startswith("if-")}


@pytest.mark.shows("P055")
async def test_a_page_is_asked_for_with_what_its_site_sent(site: Site, fetcher: HttpFetcher) -> None:
    date = "Sat, 14 Mar 2026 12:00:00 GMT"
    url = site.page("/", HTML, etag='W/"v1"', last_modified=date)
    page = await get(fetcher, url)
    assert conditions(site) == {}
    assert page.validators == Validators('W/"v1"', date, url)
    site.page("/", "", status="304 Not Modified", etag='"v2"', content_length="")
    again = await fetcher.fetch(url, deadline=time.monotonic() + 5, known=page.validators)
    assert conditions(site) == {"if-none-match": 'W/"v1"', "if-modified-since": date}
    assert (again.status, again.body, again.validators) == (NOT_MODIFIED, b"", Validators('"v2"', None, url))


async def test_validators_are_sent_to_no_other_page(site: Site, fetcher: HttpFetcher) -> None:
    """A redirect that leads elsewhere now must not compare the ETag of where it led before."""
    old = Validators(etag='"v1"', url=f"{site.url}/old")
    site.page("/new", HTML, etag='"v1"')
    page = await fetcher.fetch(site.route("/", redirect("/new")), deadline=time.monotonic() + 5, known=old)
    assert (page.status, conditions(site)) == (200, {})
    await fetcher.fetch(site.page("/old", HTML), deadline=time.monotonic() + 5, known=old)
    assert conditions(site) == {"if-none-match": '"v1"'}


async def test_a_page_says_where_it_refreshes_to_and_what_redirects_are_left(
    site: Site, fetcher: HttpFetcher
) -> None:
    site.page("/new", HTML, refresh="0;url=/newer")
    page = await get(fetcher, site.route("/", redirect("/new")))
    assert (page.refresh, page.redirects) == ("0;url=/newer", MAX_REDIRECTS - 1)


async def test_a_site_that_says_unchanged_unasked_is_refused(site: Site, fetcher: HttpFetcher) -> None:
    error = await failed(fetcher, site.page("/", "", status="304 Not Modified"))
    assert (type(error), error.code) == (PermanentError, "http_304")


@pytest.mark.parametrize(
    ("etag", "date"),
    [("v1", "x" * 65), ('"' + "x" * 251 + '"', "1 Jan\x01"), ('"a" "b"', "<script>"), ('"\xe4"', "")],
)
async def test_malformed_validators_count_as_none(
    site: Site, fetcher: HttpFetcher, etag: str, date: str
) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-length: 0\r\netag: {etag}\r\nlast-modified: {date}\r\n\r\n"
    if "\x01" in date:
        head = head.replace("\x01", ";")
    url = site.route("/", head.encode("latin-1"))
    assert (await get(fetcher, url)).validators == Validators(url=url)

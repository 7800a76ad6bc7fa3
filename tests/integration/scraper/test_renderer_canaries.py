"""Scripts of a rendered page reach no private service: canaries see no connection and no datagram."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from indexmill.scraper.adapters.chromium_process import GUARDS
from indexmill.scraper.adapters.http_fetcher import PinnedBackend
from tests.integration.scraper.rendering import (
    WAYS,
    Task,
    changed,
    datagrams,
    needs_chromium,
    own_address,
    rendered,
    renderer,
    tried,
    way_out,
)
from tests.integration.scraper.site import Site, answer, running_site
from tests.integration.scraper.test_canaries import Network

pytestmark = [needs_chromium, pytest.mark.timeout(600)]
UNHEARD = frozenset(
    (
        "dns-prefetch",
        "download",
        "icon",
        "img",
        "manifest",
        "ping",
        "popup",
        "preconnect",
        # Ended, or not there: test_renderer_windows.py shows that they would ask.
        "service-worker",
        "shared-worker",
        "video",
        "webtransport",
    )
)
"""Ways in which no request is sent even where it is allowed: they are refused before, or only connect."""


@pytest.fixture
def six() -> Iterator[Site]:
    with running_site(host="::1") as running:
        yield running


def tcp_tasks(site: Site, six: Site) -> list[Task]:
    bases = (f"http://127.0.0.1:{site.port}", f"http://[::1]:{six.port}", f"http://localhost:{site.port}")
    return [(name, f"{base}/{name}") for name in WAYS for base in bases]


def udp_tasks(port: int) -> list[Task]:
    hosts = ("127.0.0.1", "[::1]", "localhost", own_address())
    stun = [{"urls": f"stun:{host}:{port}"} for host in hosts]
    turn = [
        {"urls": f"turn:{host}:{port}?transport={kind}", "username": "u", "credential": "p"}
        for host in hosts
        for kind in ("udp", "tcp")
    ]
    quic: list[Task] = [("webtransport", f"https://{host}:{port}/x") for host in hosts]
    return [("webrtc", stun), ("webrtc", turn), *quic]


@pytest.mark.shows("S10", "B33", "B36", "B42", "B43")
def test_no_way_out_leads_to_a_private_service(site: Site, canary: Site, six: Site) -> None:
    with datagrams() as (port, seen):
        tasks = [*tcp_tasks(canary, six), *udp_tasks(port)]
        html = rendered(renderer(site), *way_out(site, tasks))
        assert sorted(tried(html)) == sorted(name for name, _ in tasks)
    assert (canary.connections, canary.heads) == (0, [])
    assert (six.connections, six.heads) == (0, [])
    assert seen == []
    # The page had a network: what its own site offers was asked for.
    redirects = {f"/to?http://127.0.0.1:{canary.port}/{name}" for name in WAYS if "redirect" in name}
    assert redirects <= set(site.paths)


@pytest.mark.shows("S10", "B40", "B41")
def test_a_name_that_becomes_private_leads_nowhere(canary: Site, six: Site, site: Site) -> None:
    network = Network(canary, six, site)
    backend = PinnedBackend(frozenset(), resolver=network.resolve, inner=network)
    # Each connection resolves the name again: the first answer is public, every later one is private.
    site.routes["/first"] = answer("1", connection="close", access_control_allow_origin="*")
    hosts = ("rebinding.example", "private.example", "both.example", "six.example", "mapped.example")
    page = (
        "<!doctype html><div id=root></div><script>(async () => {const found = [];"
        "for (const host of %s) for (const path of ['/first', '/second']) {"
        "try {found.push((await fetch('http://' + host + path)).status)} catch {found.push(0)}}"
        "root.textContent = 'Found: ' + found})()</script>"
    )
    html = rendered(renderer(backend=backend), "http://rebinding.example/", page % list(hosts))
    # A refusal of another origin has no status that the page may see.
    assert "Found: 200,403,0,0,0,0,0,0,0,0<" in html
    assert (canary.connections, six.connections) == (0, 0)
    assert site.paths == ["/first"]


@pytest.mark.shows("S10")
def test_the_browser_asks_no_name_server(site: Site, tmp_path: Path) -> None:
    log = tmp_path / "net.json"
    url = f"chromium:{changed(tmp_path, add=f'--log-net-log={log}')}"
    ways = ("dns-prefetch", "preconnect", "fetch", "iframe", "websocket", "webtransport", "worker")
    tasks: list[Task] = [(name, f"https://{name}.names.example/x") for name in ways]
    turn = {"urls": "turn:turn.names.example:3478?transport=tcp", "username": "u", "credential": "p"}
    tasks += [("webrtc", [{"urls": "stun:stun.names.example:3478"}]), ("webrtc", [turn])]
    rendered(renderer(site, url=url), *way_out(site, tasks, wait_s=1.0))
    assert asked(log) == set()


def asked(log: Path) -> set[str]:
    """Return the names that the browser resolved, or wanted to, by its own log."""
    text = log.read_text(errors="replace")
    hosts = re.findall(r'"(?:hostname":"|dns_query_type":"[A-Z]+","host":")([^"]+)"', text)
    assert hosts
    return {host for host in hosts if "notfound" not in host and "://127.0.0.1:" not in host}


@pytest.mark.long
def test_the_ways_lead_out_where_they_may(site: Site, canary: Site) -> None:
    """The tests above can fail: what is allowed is reached in each way, through the same proxy."""
    tasks: list[Task] = [(name, f"{canary.url}/{name}") for name in WAYS]
    rendered(renderer(site, canary), *way_out(site, tasks))
    assert {path.strip("/") for path in canary.paths} == WAYS.keys() - UNHEARD


@pytest.mark.long
@pytest.mark.parametrize("guard", ["proxy", "bypass", "resolver", "webrtc"])
def test_every_guard_is_needed(
    guard: str, site: Site, canary: Site, six: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above can fail: without any one of the guards something gets out."""
    if guard == "proxy":
        monkeypatch.setattr("indexmill.scraper.adapters.guarded_proxy.vetted_origin", unchecked)
        monkeypatch.setattr("indexmill.scraper.adapters.http_fetcher.is_public", bool)
    log = tmp_path / "net.json"
    program = changed(tmp_path, drop=GUARDS.get(guard, "").partition("=")[0], add=f"--log-net-log={log}")
    turn = {"urls": "turn:turn.names.example:3478?transport=tcp", "username": "u", "credential": "p"}
    with datagrams() as (port, seen):
        tasks = [*tcp_tasks(canary, six), *udp_tasks(port), ("webrtc", [turn])]
        rendered(renderer(site, url=f"chromium:{program}"), *way_out(site, tasks))
    reached = {"tcp": canary.connections + six.connections, "names": len(asked(log)), "udp": len(seen)}
    noticed = {"proxy": "tcp", "bypass": "tcp", "resolver": "names", "webrtc": "udp"}[guard]
    assert {name for name, count in reached.items() if count} == {noticed}


def unchecked(url: str, _: object) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 80

"""A renderer on this machine's Chromium, and pages that try every way out of it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from indexmill.platform.aws.secrets import Secret
from indexmill.platform.time import SystemClock
from indexmill.scraper.adapters.chromium_renderer import ChromiumRenderer, RenderLimits
from indexmill.scraper.adapters.http_fetcher import PinnedBackend
from indexmill.scraper.ports import Fetched
from local.stack.chromium import chromium
from tests.integration.scraper.site import Site, answer

Task = tuple[str, object]
"""Name of a way, and where it leads: a URL, or the servers of WebRTC."""
AGENT: Final = "IndexmillBot/1.0 (+https://example.org/bot)"
PATIENT: Final = RenderLimits(start_s=60.0, page_s=90.0, settle_s=60.0, leave_s=30.0, requests=2_000)
"""For a busy machine."""
DEADLINE_S: Final = 180.0

needs_chromium = pytest.mark.skipif(chromium() is None, reason="there is no Chromium on this machine")


def program() -> str:
    """Return this machine's Chromium."""
    found = chromium()
    assert found is not None
    return found


def renderer(
    *sites: Site,
    limits: RenderLimits = PATIENT,
    backend: PinnedBackend | None = None,
    url: str = "",
) -> ChromiumRenderer:
    """A renderer whose pages may reach `sites`."""
    return ChromiumRenderer(
        Secret(url or f"chromium:{program()}"),
        user_agent=AGENT,
        allowed_hosts=frozenset(site.host for site in sites),
        clock=SystemClock(),
        limits=limits,
        backend=backend,
    )


def page(url: str, html: str) -> Fetched:
    return Fetched(url, 200, "text/html", "utf-8", html.encode())


def rendered(made: ChromiumRenderer, url: str, html: str) -> str:
    """Return the HTML of a page after its scripts ran."""
    got = asyncio.run(made.render(page(url, html), deadline=time.monotonic() + DEADLINE_S))
    return got.decode()


@contextmanager
def datagrams() -> Iterator[tuple[int, list[str]]]:
    """A UDP port of every address; the list has the senders of all datagrams when the block has ended."""
    seen: list[str] = []
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as canary:
        canary.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        canary.bind(("::", 0))
        canary.setblocking(False)
        yield canary.getsockname()[1], seen
        while True:
            try:
                seen.append(str(canary.recvfrom(2048)))
            except BlockingIOError:
                break


def own_address() -> str:
    """Return the IPv4 address of this machine that has the route outside; that of loopback without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # nothing is sent
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


WAYS: Final = {
    "iframe": "await loads('iframe', {src: to})",
    "object": "await loads('object', {data: to})",
    "embed": "await loads('embed', {src: to})",
    "img": "await loads('img', {src: to})",
    "video": "await loads('video', {src: to, autoplay: true})",
    "script": "await loads('script', {src: to})",
    "module": "await loads('script', {src: to, type: 'module'})",
    "stylesheet": "await loads('link', {rel: 'stylesheet', href: to})",
    "manifest": "await loads('link', {rel: 'manifest', href: to})",
    "icon": "await loads('link', {rel: 'icon', href: to})",
    "prefetch": "await loads('link', {rel: 'prefetch', href: to})",
    "preload": "await loads('link', {rel: 'preload', as: 'fetch', href: to})",
    "modulepreload": "await loads('link', {rel: 'modulepreload', href: to})",
    "preconnect": "await loads('link', {rel: 'preconnect', href: to})",
    "dns-prefetch": "await loads('link', {rel: 'dns-prefetch', href: to})",
    "speculation": "const rules = {prerender: [{urls: [to], eagerness: 'immediate'}],"
    " prefetch: [{urls: [to]}]};"
    " await loads('script', {type: 'speculationrules', textContent: JSON.stringify(rules)})",
    "fetch": "await fetch(to)",
    "no-cors": "await fetch(to, {mode: 'no-cors', method: 'POST', body: 'x', credentials: 'include'})",
    "keepalive": "await fetch(to, {mode: 'no-cors', keepalive: true})",
    "xhr": "await new Promise(end => {const x = new XMLHttpRequest(); x.onloadend = end;"
    " x.open('GET', to); x.send()})",
    "beacon": "navigator.sendBeacon(to, 'x')",
    "ping": "const a = put('a', {href: '#x', ping: to}); a.click()",
    "download": "const a = put('a', {href: to, download: 'x'}); a.click()",
    "event-source": "await new Promise(end => {const e = new EventSource(to);"
    " e.onerror = e.onopen = () => {e.close(); end()}})",
    "websocket": "await new Promise(end => {const s = new WebSocket(to.replace('http', 'ws'));"
    " s.onopen = s.onclose = end})",
    "webtransport": "const t = new WebTransport(to.replace('http:', 'https:')); await t.ready",
    "worker": "await inWorker(`fetch('${to}').finally(() => postMessage(1)).catch(() => 0)`)",
    "import-scripts": "await inWorker(`try {importScripts('${to}')} catch {} postMessage(1)`)",
    "worker-socket": "await inWorker(`new WebSocket('${to.replace('http', 'ws')}').onclose"
    " = () => postMessage(1)`)",
    "shared-worker": "await new Promise(end => {const s = `onconnect = e => fetch('${to}').finally("
    "() => e.ports[0].postMessage(1)).catch(() => 0)`;"
    " const w = new SharedWorker('data:text/javascript,' + encodeURIComponent(s));"
    " w.port.onmessage = w.onerror = end})",
    "service-worker": "const r = await navigator.serviceWorker.register('/sw.js?' + encodeURIComponent(to),"
    " {scope: '/' + name + '/' + position + '/'}); const w = r.installing || r.active;"
    " await new Promise(end => {w.onstatechange = () => w.state == 'activated' && end();"
    " if (w.state == 'activated') end()})",
    "form": "const f = put('iframe', {name: 'f' + position}); const form = put('form',"
    " {method: 'POST', action: to, target: f.name}); const left = new Promise(end => f.onload = end);"
    " form.submit(); await left",
    "popup": "open(to)",
    "meta-refresh": "await loads('iframe', {srcdoc: `<meta http-equiv=refresh content='0; url=${to}'>`});"
    " await pause(300)",
    "script-navigation": "put('iframe', {srcdoc: `<script>location = '${to}'</scr` + `ipt>`});"
    " await pause(300)",
    "redirect": "await loads('iframe', {src: '/to?' + to})",
    "redirected-fetch": "await fetch('/to?' + to, {mode: 'no-cors'})",
    "redirected-script": "await loads('script', {src: '/to?' + to})",
}
"""Script of every way out over TCP, to the URL `to`."""
_PAGE: Final = """<!doctype html><title>Ways out</title><div id=root></div><script>
const pause = ms => new Promise(end => setTimeout(end, ms));
const put = (tag, values) => document.body.appendChild(Object.assign(document.createElement(tag), values));
const loads = (tag, values) => new Promise(end => {const e = document.createElement(tag);
  e.onload = e.onerror = e.onloadeddata = end; Object.assign(e, values); document.body.appendChild(e)});
const inWorker = text => new Promise(end => {
  const w = new Worker(URL.createObjectURL(new Blob([text]))); w.onmessage = w.onerror = end});
const candidates = servers => new Promise(end => {
  const c = new RTCPeerConnection({iceServers: servers}); c.createDataChannel('x');
  c.onicegatheringstatechange = () => c.iceGatheringState == 'complete' && end();
  c.createOffer().then(offer => c.setLocalDescription(offer))});
const WAYS = {%(ways)s};
const tried = [];
async function all() {
  // The page is not quiet before this is answered.
  fetch('/hold');
  await Promise.all(%(tasks)s.map(async ([name, to], position) => {
    try {await Promise.race([WAYS[name](to, name, position), pause(%(wait_ms)d)])} catch {}
    tried.push(name)}));
  document.getElementById('root').textContent = 'Tried: ' + JSON.stringify(tried) + '.';
  await fetch('/release');
}
all();
</script>"""


def way_out(site: Site, tasks: Sequence[Task], *, wait_s: float = 3.0) -> tuple[str, str]:
    """Return URL and HTML of a page of `site` that tries each (name, target) and lists them in the end."""
    released = asyncio.Event()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.write(answer("", connection="close"))

    async def release(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        released.set()
        writer.write(answer("", connection="close"))

    site.route("/hold", hold)
    site.route("/release", release)
    for _, to in tasks:
        if isinstance(to, str):
            location = answer("", status="302 Found", location=to, access_control_allow_origin="*")
            site.routes[f"/to?{to}"] = location
            worker = f"self.oninstall = e => e.waitUntil(fetch({json.dumps(to)}).catch(() => skipWaiting()))"
            site.page(f"/sw.js?{_quoted(to)}", worker, "text/javascript")
    ways: dict[str, str] = {**WAYS, "webrtc": "await candidates(to)"}
    values: dict[str, Any] = {
        "ways": ", ".join(
            f"{json.dumps(name)}: async (to, name, position) => {{{script}}}" for name, script in ways.items()
        ),
        "tasks": json.dumps(list(tasks)),
        "wait_ms": wait_s * 1000,
    }
    return f"{site.url}/ways", _PAGE % values


def tried(html: str) -> list[str]:
    """Return the ways that the page says it has tried."""
    begin, end = html.index("Tried: ") + 7, html.index("].") + 1
    return list(json.loads(html[begin:end]))


def _quoted(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.!~*'()" else f"%{ord(c):02X}" for c in text)


def changed(folder: Path, *, drop: str = "", add: str = "") -> str:
    """Return a program that starts Chromium without the flag that begins with `drop`, and with `add`."""
    made = folder / "chromium"
    made.write_text(
        "#!/bin/sh\nfor each; do shift; case $each in\n"
        f'"{drop or "--nothing"}"*) ;;\n*) set -- "$@" "$each" ;;\nesac; done\n'
        f'exec "{program()}" "$@" {add}\n'
    )
    made.chmod(0o700)
    return str(made)

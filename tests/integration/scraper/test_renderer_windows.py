"""Windows, frames and workers of a page in a service's browser are closed, or judged like the page."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final
from unittest.mock import AsyncMock

import pytest

from indexmill.platform.aws.secrets import Secret
from indexmill.platform.time import SystemClock
from indexmill.scraper.adapters import chromium_page
from indexmill.scraper.adapters.chromium_process import launched
from indexmill.scraper.adapters.chromium_renderer import ChromiumRenderer
from tests.integration.scraper.rendering import (
    AGENT,
    DEADLINE_S,
    PATIENT,
    WAYS,
    Task,
    changed,
    needs_chromium,
    page,
    tried,
    way_out,
)
from tests.integration.scraper.site import Site

pytestmark = [needs_chromium, pytest.mark.timeout(600)]

_FETCH: Final = "<script>fetch('${to}', {mode: 'no-cors'})</scr` + `ipt>"
WINDOWS: Final = {
    "window": "open(to)",
    "window-noopener": "open(to, '_blank', 'noopener')",
    "window-written": f"open('about:blank').document.write(`{_FETCH}`); await pause(300)",
    "window-blob": f"open(URL.createObjectURL(new Blob([`{_FETCH}`], {{type: 'text/html'}})));"
    " await pause(300)",
    "link": "put('a', {href: to, target: '_blank'}).click()",
    "link-opener": "put('a', {href: to, target: '_blank', rel: 'opener'}).click()",
    "form-window": "put('form', {method: 'POST', action: to, target: '_blank'}).submit()",
    "window-of-a-frame": "put('iframe', {srcdoc: `<script>open('${to}')</scr` + `ipt>`}); await pause(300)",
}
"""Script of each way to open a window, to the URL `to`."""
ENDS: Final = {
    "pagehide": "addEventListener('pagehide', () => navigator.sendBeacon(to, 'x'))",
    "unload": "addEventListener('unload', () => fetch(to, {mode: 'no-cors', keepalive: true}))",
    "pagehide-of-a-frame": "put('iframe', {srcdoc: `<script>addEventListener('pagehide',"
    " () => navigator.sendBeacon('${to}', 'x'))</scr` + `ipt>`}); await pause(300)",
}
"""Script of each way to ask for something when the page ends."""
NAMED: Final = {
    "payment": "new PaymentRequest([{supportedMethods: to}], {total: {label: 'x', amount: {currency: 'USD',"
    " value: '1'}}}).canMakePayment(); await pause(500)",
    "login": "await navigator.credentials.get({identity: {providers: [{configURL: to, clientId: 'x'}]}})",
}
"""Script of each way to have the browser itself ask for something."""
FRAME: Final = "frame-of-another-site"
SHARED: Final = "shared-worker-of-a-frame"
WORKERS: Final = ("worker", "import-scripts", "shared-worker", "service-worker")


def asked(site: Site, canary: Site, folder: Path) -> set[str]:
    """Return the ways in which a page reached the canary; the browser isolates sites and blocks nothing."""
    own = {**WINDOWS, **ENDS, **NAMED}
    ways = {**{name: WAYS[name] for name in ("fetch", "form", *WORKERS)}, **own}
    tasks: list[Task] = [(name, f"{canary.url}/{name}") for name in ways]
    # A process of its own, as it is of another site; what it asks for is in no event of the page.
    inner = f"<script>fetch('{canary.url}/{FRAME}', {{mode: 'no-cors'}}).catch(() => 0)</script>"
    inner += f"<script>new SharedWorker('data:text/javascript,fetch(%22{canary.url}/{SHARED}%22)')</script>"
    site.page("/frame", inner)
    loads = f"await loads('iframe', {{src: 'http://localhost:{site.port}/frame'}}); await pause(300)"
    with pytest.MonkeyPatch.context() as patch:
        for name, script in {**own, FRAME: loads}.items():
            patch.setitem(WAYS, name, script)
        # As it ends its own site is not asked either.
        more: list[Task] = [(FRAME, site.url), ("pagehide", f"{site.url}/late")]
        url, html = way_out(site, [*tasks, *more])
    got = asyncio.run(in_service(site, folder, (url, html), (site.url, "<p>The page after it.</p>")))
    assert sorted(tried(got[0])) == sorted([*ways, *(name for name, _ in more)])
    # The frame was there: what it asks for is refused, not the frame.
    assert "/frame" in site.paths
    return {path.strip("/") for path in (*canary.paths, *(each for each in site.paths if each == "/late"))}


async def in_service(site: Site, folder: Path, *pages: tuple[str, str]) -> list[str]:
    """Return the HTML of pages, rendered one after the other in one browser.

    Its rules stop nothing, and what a page leaves behind can ask for something until the next one has ended.
    """
    found = []
    # Nor does its own rule stop pages at addresses of this machine, where the canary is.
    flags = "--no-proxy-server --disable-popup-blocking --site-per-process"
    flags += " --disable-features=LocalNetworkAccessChecks"
    async with launched(
        changed(folder, drop="--host-resolver-rules", add=flags),
        proxy_port=9,
        user_agent="x",
        start_s=PATIENT.start_s,
        memory_bytes=PATIENT.memory_bytes * 2,
        on_excess=str,
    ) as address:
        made = ChromiumRenderer(
            Secret(address),
            user_agent=AGENT,
            allowed_hosts=frozenset({site.host, ("localhost", site.port)}),
            clock=SystemClock(),
            limits=PATIENT,
        )
        for url, html in pages:
            got = await made.render(page(url, html), deadline=time.monotonic() + DEADLINE_S)
            found.append(got.decode())
    return found


@pytest.mark.shows("S10")
def test_windows_frames_and_workers_of_a_page_lead_to_no_private_service(
    site: Site, canary: Site, tmp_path: Path
) -> None:
    assert asked(site, canary, tmp_path) == set()


@pytest.mark.long
@pytest.mark.parametrize("guard", ["sandbox", "attached", "left", "features"])
def test_each_guard_is_needed(
    guard: str, site: Site, canary: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail."""
    if guard == "sandbox":
        monkeypatch.setattr(chromium_page, "_SANDBOX", "upgrade-insecure-requests")
        monkeypatch.setattr(chromium_page, "_ATTACH", {"autoAttach": False, "waitForDebuggerOnStart": False})
        assert {"window", "link", "form-window"} <= asked(site, canary, tmp_path)
    elif guard == "left":
        monkeypatch.setattr(chromium_page.ChromiumPage, "leave", AsyncMock())
        assert ENDS.keys() & asked(site, canary, tmp_path)
    elif guard == "features":
        monkeypatch.setattr(chromium_page, "_NO_FEATURES", "")
        assert "payment" in asked(site, canary, tmp_path)
    else:
        monkeypatch.setattr(chromium_page, "_ATTACH", {"autoAttach": False, "waitForDebuggerOnStart": False})
        monkeypatch.setattr(chromium_page, "_NO_SHARED_WORKERS", "")
        assert {"service-worker", "shared-worker", FRAME} <= asked(site, canary, tmp_path)

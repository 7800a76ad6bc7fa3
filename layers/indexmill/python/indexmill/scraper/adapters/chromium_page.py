"""One page in a browser: its scripts run on the content that was fetched, then its HTML is read."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import defaultdict
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final

from indexmill.contracts.errors import CallerError, ErrorCode, IndexmillError, failure
from indexmill.platform.security.urls import AllowedHosts
from indexmill.scraper.adapters.cdp import BrowserGoneError, Cdp, CommandError, Event
from indexmill.scraper.adapters.guarded_proxy import vetted_origin
from indexmill.scraper.extract.content import Kind, RawContent, html_of
from indexmill.scraper.ports import Fetched

_ALL: Final = [{"urlPattern": "*"}]
_ATTACH: Final[dict[str, Any]] = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
_QUIET: Final = "networkIdle"
"""Lifecycle event: no request for half a second."""
_NOT_LOADED: Final = frozenset({"Image", "Media", "Font"})
# No windows, which would be targets of their own, whose requests are not judged. Frames inherit it.
_SANDBOX: Final = "sandbox allow-scripts allow-same-origin allow-forms"
# What a page names for payments, logins, advertisements or for later is asked for by no target.
_NO_FEATURES: Final = ", ".join(
    f"{each}=()"
    for each in (
        "attribution-reporting",
        "deferred-fetch",
        "deferred-fetch-minimal",
        "identity-credentials-get",
        "join-ad-interest-group",
        "payment",
        "run-ad-auction",
        "shared-storage",
    )
)
# A shared worker belongs to no page: it would not wait to be judged.
_NO_SHARED_WORKERS: Final = "delete globalThis.SharedWorker"
# In a world of its own, where scripts of the page have replaced nothing.
_READ: Final = (
    "(() => {{ const html = document.documentElement?.outerHTML ?? '';"
    " return html.length > {0} ? null : html }})()"
)


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Limits of one page."""

    requests: int
    document_bytes: int
    settle_s: float
    """Longest wait for a page that does not become quiet; then it is read as it is."""
    leave_s: float
    """Longest wait for the end of a page."""


class Stop:
    """The first reason for which a page is given up."""

    def __init__(self) -> None:
        """In the running event loop."""
        self._reason: asyncio.Future[IndexmillError] = asyncio.get_running_loop().create_future()

    def exceeded(self, what: str) -> None:
        """Give up, since the page needs too much of something."""
        self._set(failure(ErrorCode.RENDER_LIMIT_EXCEEDED, f"The page's scripts need too much: {what}"))

    def crashed(self) -> None:
        """Give up, since the page's process ended."""
        self._set(failure(ErrorCode.RENDERER_UNAVAILABLE))

    def gone(self, error: BrowserGoneError) -> None:
        """Give up, since the connection to the browser ended."""
        self._set(failure(ErrorCode.CONTENT_TOO_LARGE if error.too_big else ErrorCode.RENDERER_UNAVAILABLE))

    def _set(self, error: IndexmillError) -> None:
        if not self._reason.done():
            self._reason.set_result(error)

    async def unless(self, act: Awaitable[bytes]) -> bytes:
        """Return what `act` returns; raise the reason when there is one before."""
        task = asyncio.ensure_future(act)
        try:
            waits: set[asyncio.Future[Any]] = {task, self._reason}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if self._reason.done():
                raise self._reason.result()
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class ChromiumPage:
    """A tab in a context of its own, with no cookies and no storage of another."""

    def __init__(
        self,
        cdp: Cdp,
        session: str,
        frame: str,
        *,
        limits: PageLimits,
        allowed_hosts: AllowedHosts | None,
        stop: Stop,
    ) -> None:
        """With `allowed_hosts`, requests to addresses that are private by their spelling are refused here."""
        self._cdp, self._session, self._frame = cdp, session, frame
        self._limits = limits
        self._allowed = allowed_hosts
        self._stop = stop
        self._requests = 0
        self._left = False
        self._page: Fetched | None = None
        self._quiet: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """By the navigation that it is about."""
        self._judge(session)
        cdp.on("Page.lifecycleEvent", session, self._lifecycle)
        cdp.on(
            "Page.javascriptDialogOpening",
            session,
            lambda _: self._post("Page.handleJavaScriptDialog", accept=False),
        )
        cdp.on("Inspector.targetCrashed", session, lambda _: stop.crashed())

    async def html(self, page: Fetched, user_agent: str) -> bytes:
        """Return the HTML of `page` when it has become quiet.

        Raises PermanentError(content_too_large), CommandError and BrowserGoneError.
        """
        await self._send("Inspector.enable")
        await self._send("Page.enable")
        await self._send("Page.setLifecycleEventsEnabled", enabled=True)
        await self._send("Emulation.setUserAgentOverride", userAgent=user_agent)
        self._post("Page.setPrerenderingAllowed", isAllowed=False)
        await self._send("Target.setAutoAttach", **_ATTACH)
        await self._send("Page.addScriptToEvaluateOnNewDocument", source=_NO_SHARED_WORKERS)
        await self._send("Fetch.enable", patterns=_ALL)
        self._page = page
        went = await self._send("Page.navigate", url=page.final_url)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.settle_s):
                await self._quiet[went["loaderId"]].wait()
        world = await self._send("Page.createIsolatedWorld", frameId=self._frame)
        answer = await self._send(
            "Runtime.evaluate",
            expression=_READ.format(self._limits.document_bytes),
            contextId=world["executionContextId"],
            returnByValue=True,
        )
        text = answer["result"].get("value")
        html = None if text is None else text.encode(errors="replace")
        if html is None or len(html) > self._limits.document_bytes:
            raise failure(ErrorCode.CONTENT_TOO_LARGE)
        return bytes(html)

    async def leave(self) -> None:
        """End the page while its requests can be refused: it and its workers send some until the end.

        When the connection ends the browser sends what still waits for an answer.
        """
        self._left = True
        with contextlib.suppress(TimeoutError, CommandError, BrowserGoneError):
            async with asyncio.timeout(self._limits.leave_s):
                went = await self._send("Page.navigate", url="about:blank")
                await self._quiet[went["loaderId"]].wait()

    def _judge(self, session: str) -> None:
        """Decide about the requests of a target, and about the targets that it makes."""
        self._cdp.on("Fetch.requestPaused", session, lambda event: self._paused(event, session))
        self._cdp.on("Target.attachedToTarget", session, self._attached)

    def _attached(self, event: Event) -> None:
        """Judge a frame with a process of its own like the page; end what outlives it, as service workers."""
        session, target = event["sessionId"], event["targetInfo"]
        if target["type"] not in ("iframe", "worker"):
            self._cdp.post("Target.closeTarget", targetId=target["targetId"])
            return
        if target["type"] == "iframe":
            self._judge(session)
            self._cdp.post("Page.enable", session)
            self._cdp.post("Page.addScriptToEvaluateOnNewDocument", session, source=_NO_SHARED_WORKERS)
            self._cdp.post("Target.setAutoAttach", session, **_ATTACH)
            self._cdp.post("Fetch.enable", session, patterns=_ALL)
        # It has waited since its start. What a worker asks for is paused for the page or frame that has it.
        self._cdp.post("Runtime.runIfWaitingForDebugger", session)

    def _paused(self, event: Event, session: str) -> None:
        """Decide about a request that waits."""
        number, kind, url = event["requestId"], event["resourceType"], event["request"]["url"]
        if kind == "Document" and event["frameId"] == self._frame:
            page, self._page = self._page, None
            if page is not None:
                self._fulfill(number, page)
            else:
                # The page leads elsewhere: what is there was not asked for, and it stays as it is.
                self._cdp.post("Fetch.failRequest", session, requestId=number, errorReason="Aborted")
            return
        self._requests += 1
        if self._requests > self._limits.requests:
            self._stop.exceeded("requests")
        elif self._left or kind in _NOT_LOADED or not self._may_ask(url):
            self._cdp.post("Fetch.failRequest", session, requestId=number, errorReason="BlockedByClient")
        else:
            self._cdp.post("Fetch.continueRequest", session, requestId=number)

    def _fulfill(self, number: str, page: Fetched) -> None:
        """Answer the request for the page with what was fetched: the site is not asked twice."""
        body, charset = page.body, f"; charset={page.charset}" if page.charset else ""
        if page.content_type == Kind.XHTML:
            # Under its own name a browser shows an error for a page that is not well-formed.
            body, charset = (
                html_of(RawContent(page.body, Kind.XHTML, page.charset)).encode(),
                "; charset=utf-8",
            )
        self._post(
            "Fetch.fulfillRequest",
            requestId=number,
            responseCode=200,
            responseHeaders=[
                {"name": "Content-Type", "value": f"text/html{charset}"},
                {"name": "Content-Security-Policy", "value": _SANDBOX},
                {"name": "Permissions-Policy", "value": _NO_FEATURES},
            ],
            body=base64.b64encode(body).decode("ascii"),
        )

    def _may_ask(self, url: str) -> bool:
        if self._allowed is None or not url.startswith(("http:", "https:")):
            return True
        try:
            vetted_origin(url, self._allowed)
        except CallerError:
            return False
        return True

    def _lifecycle(self, event: Event) -> None:
        if event["name"] == _QUIET:
            self._quiet[event["loaderId"]].set()

    async def _send(self, method: str, **parameters: object) -> Event:
        return await self._cdp.send(method, self._session, **parameters)

    def _post(self, method: str, **parameters: object) -> None:
        self._cdp.post(method, self._session, **parameters)


async def opened_tab(cdp: Cdp) -> tuple[str, str]:
    """Return session and frame of a tab in a context of its own, which ends with the connection."""
    made = (await cdp.send("Target.createBrowserContext", disposeOnDetach=True))["browserContextId"]
    await cdp.send("Browser.setDownloadBehavior", behavior="deny", browserContextId=made)
    target = (await cdp.send("Target.createTarget", url="about:blank", browserContextId=made))["targetId"]
    attached = await cdp.send("Target.attachToTarget", targetId=target, flatten=True)
    return attached["sessionId"], target

"""Rate limit of sites: each request takes a token of its site, or waits for one in the queue.

Only the rest of a crawl delay, which begins when the request before is really sent, is waited for in place.

The state of a site (`token_bucket.py`) is shared by all workers. It costs one conditional write for the
requests that pages of a batch want to send at the same moment, and nothing for a site without a limit.
Without the store no request is sent.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from indexmill.contracts.errors import UNREACHABLE, DomainBusy, ErrorCode, IndexmillError, PermanentError
from indexmill.contracts.identity import new_id
from indexmill.platform.aws.state_table import StoreClock, StoreUnavailable
from indexmill.platform.security.urls import DomainRate, DomainRates, site_of
from indexmill.scraper.ports import NameNotFound
from indexmill.scraper.token_bucket import (
    Ended,
    HostState,
    HostStates,
    Refusal,
    TokenRequest,
    finish,
    spacing,
    take,
)

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)
_RACES: Final = 10
"""Tries of a write that other workers were faster than each time."""
_SITES: Final = 256
_NARROW: Final = 20
"""Largest burst of a site whose ended requests are written with the end of a batch."""
_REST_S: Final = 0.25
"""The longest wait in place."""
_LOOK_S: Final = 0.1
"""Between two looks for a cancel during work that sends requests of its own."""
_UNKNOWN_S: Final = 5.0
"""Wait while the store is unavailable."""
_MESSAGES: Final = {
    "domain_busy": "The site gets as many requests now as it may",
    "domain_failing": "The site failed several times and is left alone for a while",
}
_FAILED: Final = UNREACHABLE | {
    ErrorCode.READ_TIMEOUT,
    ErrorCode.DEADLINE_EXCEEDED,
    ErrorCode.ROBOTS_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class _Attempt:
    request_id: str
    fetch: PageFetch
    delay_s: float


@dataclass(frozen=True, slots=True)
class _Batch:
    """Requests of one event loop that are decided by one write; the task returns their refusals, in order."""

    attempts: list[_Attempt]
    task: asyncio.Task[list[Refusal | None]]


@dataclass(slots=True)
class _Known:
    """State of a site as this process saw it last, and what it has to say of it."""

    version: int = 0
    state: HostState = field(default_factory=HostState)
    ended: deque[Ended] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)
    gathering: _Batch | None = None
    """The batch that takes further attempts."""


class RateLimiter:
    """Sends requests at the rates of their sites."""

    def __init__(self, rates: DomainRates, states: HostStates, clock: StoreClock) -> None:
        """`clock` is corrected by the store's answers."""
        self._rates = rates
        self._states = states
        self._clock = clock
        self._sites: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def page(
        self,
        deadline: float,
        key: str | None = None,
        resume: str | None = None,
        hosts: Collection[str] | None = None,
    ) -> PageFetch:
        """Begin the requests of one page, which end by the monotonic second `deadline`.

        `key` is the message's, which returns after a wait; None for a caller that waits for its answer.
        `resume` is that of the DomainBusy before, and redirects may lead to `hosts` alone; None is any.
        """
        return PageFetch(self, deadline, key, resume, hosts)

    def rate(self, site: str) -> DomainRate | None:
        """Return the rate of a site; None is no limit."""
        return self._rates.of(site)

    async def take(
        self, site: str, rate: DomainRate, request_id: str, fetch: PageFetch, delay_s: float
    ) -> None:
        """Allow one request. Raises DomainBusy."""
        known, loop = self._known(site), asyncio.get_running_loop()
        joined = known.gathering
        if joined is None or joined.task.done() or joined.task.get_loop() is not loop:
            attempts: list[_Attempt] = []
            joined = _Batch(attempts, loop.create_task(self._together(site, rate, known, attempts)))
            known.gathering = joined
        place = len(joined.attempts)
        joined.attempts.append(_Attempt(request_id, fetch, delay_s))
        refusals = await asyncio.shield(joined.task)
        if (refusal := refusals[place]) is not None:
            raise DomainBusy(refusal.reason, _MESSAGES[refusal.reason], site, refusal.wait_s, refusal.cause)

    async def _together(
        self, site: str, rate: DomainRate, known: _Known, attempts: list[_Attempt]
    ) -> list[Refusal | None]:
        """Decide the attempts of all pages that were ready before this began."""
        known.gathering = None
        return await asyncio.to_thread(self._decide, site, rate, known, attempts)

    def _decide(
        self, site: str, rate: DomainRate, known: _Known, attempts: Sequence[_Attempt]
    ) -> list[Refusal | None]:
        """Return the refusals, in order; None for a request that is allowed. Blocks for the store."""
        with known.lock:
            try:
                for _ in range(_RACES):
                    now, ended = self._clock.now(), list(known.ended)
                    state, refusals = finish(known.state, now, ended), list[Refusal | None]()
                    for attempt in attempts:
                        left_s = max(0.0, attempt.fetch.deadline - self._clock.monotonic())
                        request = TokenRequest(
                            attempt.request_id, now + left_s, attempt.fetch.key, attempt.delay_s
                        )
                        state, refusal = take(state, now, rate, request)
                        refusals.append(refusal)
                    if self._write(site, known, state, len(ended)):
                        return refusals
            except StoreUnavailable:
                _LOG.warning("the pace of sites is unavailable", exc_info=True)
                return [Refusal(_UNKNOWN_S, "domain_busy") for _ in attempts]
        return [Refusal(random.uniform(1.0, 3.0), "domain_busy") for _ in attempts]  # noqa: S311 - jitter

    def now(self) -> float:
        """Return the second since the epoch."""
        return self._clock.now()

    def ended(self, site: str, request_id: str, error: IndexmillError | None, next_at: float = 0.0) -> None:
        """Note that a request ended; it is written with the site's next request, or by `flush`."""
        ended = Ended(request_id, failed=False, next_at=next_at)
        if isinstance(error, NameNotFound | JobCanceled):
            ended = Ended(request_id, failed=None)
        elif error is not None and (error.code in _FAILED or _is_busy(error.code)):
            ended = replace(ended, failed=True, pause_s=error.retry_after, code=error.code)
        # Without the lock, which is held while the store is asked.
        self._known(site).ended.append(ended)

    def give_up(self, site: str, key: str) -> None:
        """Note that the token reserved for `key` is not used; it is written like a request that ended."""
        self._known(site).ended.append(Ended(key, failed=None))

    def flush(self) -> None:
        """Write what ended and matters to others: failures, their end, and room for requests in flight.

        A site with a large burst has room.
        """
        for site, known in list(self._sites.items()):
            rate = self._rates.of(site)
            with known.lock:
                matters = known.state.failures > 0 or any(each.failed for each in known.ended)
                narrow = rate is not None and rate.burst <= _NARROW
                if not known.ended or not (matters or narrow):
                    continue
                try:
                    for _ in range(_RACES):
                        ended = list(known.ended)
                        state = finish(known.state, self._clock.now(), ended)
                        if self._write(site, known, state, len(ended)):
                            break
                except StoreUnavailable:
                    return

    def _write(self, site: str, known: _Known, state: HostState, ended: int) -> bool:
        """Write the state, with so many of the ended requests; False when another worker was faster."""
        other = self._states.replace(site, known.version, state)
        if other is None:
            known.version, known.state = known.version + 1, state
            for _ in range(ended):
                known.ended.popleft()
            return True
        known.version, known.state = other
        return False

    def _known(self, site: str) -> _Known:
        with self._lock:
            known = self._sites.get(site)
            if known is None:
                known = self._sites[site] = _Known()
                if len(self._sites) > _SITES:
                    self._sites.popitem(last=False)
            else:
                self._sites.move_to_end(site)
            return known


class JobCanceled(PermanentError):
    """The job was canceled since its message was received."""

    def __init__(self) -> None:
        """Its result changes nothing: the job has ended."""
        super().__init__(ErrorCode.CANCELED, "The job was canceled")


class PageFetch:
    """Requests of one page, one after the other."""

    def __init__(
        self,
        limiter: RateLimiter,
        deadline: float,
        key: str | None,
        resume: str | None,
        hosts: Collection[str] | None,
    ) -> None:
        """As `RateLimiter.page` says it."""
        self._limiter = limiter
        self._open: tuple[str, str] | None = None
        self._apart_s = 0.0
        self._sent_at: float | None = None
        self.deadline = deadline
        self.key = key
        self.resume = resume
        self.hosts = hosts
        self.canceled: Callable[[], Awaitable[bool]] | None = None
        """Says whether its job was canceled; None where there is no job."""

    async def check(self) -> None:
        """Return when the job is still wanted. Raises JobCanceled."""
        if self.canceled is not None and await self.canceled():
            raise JobCanceled

    async def unless_canceled(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `work` returns, which is stopped when the job is canceled. Raises JobCanceled."""
        if self.canceled is None:
            return await work()
        await self.check()
        task = asyncio.create_task(work())
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
                await self.check()
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def acquire(self, url: str, delay_s: float = 0.0) -> None:
        """Return when a request to `url` may be sent; the one before has ended.

        Raises DomainBusy, and JobCanceled before a token is taken. `delay_s` is the pause that the
        site asks for between two requests.
        """
        self.end(None)
        site = site_of(url)
        rate = self._limiter.rate(site)
        try:
            await self.check()
        except JobCanceled:
            if rate is not None and self.key is not None:
                self._limiter.give_up(site, self.key)
            raise
        if rate is None:
            return
        request_id = new_id()[-12:]
        try:
            await self._limiter.take(site, rate, request_id, self, delay_s)
        except DomainBusy as busy:
            if not delay_s or busy.wait_s > _REST_S:
                raise
            await asyncio.sleep(busy.wait_s)
            await self._limiter.take(site, rate, request_id, self, delay_s)
        interval_s, burst = spacing(rate, delay_s)
        self._apart_s, self._sent_at = interval_s if burst == 1 else 0.0, None
        self._open = (site, request_id)

    async def sends(self) -> None:
        """Note that the request is sent now: connecting may have taken a while since it was allowed. Raises
        JobCanceled.
        """
        await self.check()
        self._sent_at = self._limiter.now()

    def end(self, error: IndexmillError | None) -> None:
        """Note the end of the last request, by an answer or by `error`."""
        if self._open is not None:
            begins = self._sent_at if self._apart_s else None
            self._limiter.ended(*self._open, error, 0.0 if begins is None else begins + self._apart_s)
            self._open = None


def _is_busy(code: str) -> bool:
    return code == "http_429" or code.startswith("http_5")

"""Drives a running stack: submits jobs over HTTP and reads from Postgres when each was done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import psycopg

_SUBMIT = "/orchestrator/jobs"
_OUTCOMES = """
SELECT id, status, extract(epoch FROM updated_at)::float8, chunk_count, error::text
FROM jobs WHERE id = ANY(%s)
"""

_CHUNKS = "SELECT count(*)::int, (count(*) - count(DISTINCT text))::int FROM chunks"


class PipelineFailed(RuntimeError):
    """A job did not end as every job has to; the figures would mean nothing."""


@dataclass(slots=True)
class Sent:
    """Jobs that were accepted, with the moment before their request went out (epoch seconds)."""

    at: dict[str, float] = field(default_factory=dict)
    took_s: list[float] = field(default_factory=list)
    refused: int = 0
    """Answers 429 and 503, after which the request was sent again."""


class Driver:
    """One load generator, with its connections to the gateway and to the database.

    Args:
        info: What `indexmill up --json` printed.
        site: Address of the page server.
        pages: Names of its pages.
        force: Whether pages are processed that did not change.
    """

    def __init__(
        self, info: Mapping[str, Any], site: str, pages: Sequence[str], *, force: bool = True
    ) -> None:
        self._info = info
        self._site = site
        self._pages = pages
        self._next = 0
        self.force = force

    async def __aenter__(self) -> Driver:
        self._http = aiohttp.ClientSession(
            headers={"X-API-Key": self._info["api_key"]}, timeout=aiohttp.ClientTimeout(60)
        )
        self._database = psycopg.connect(self._info["database_url"], autocommit=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()
        self._database.close()

    def urls(self, count: int) -> list[str]:
        """The next URLs; no two are equal, and no two of their pages have a text in common."""
        numbers = range(self._next, self._next + count)
        self._next += count
        site, pages = self._site, self._pages
        return [f"{site}/{pages[n % len(pages)]}?round={n // len(pages)}" for n in numbers]

    def begin_at(self, number: int) -> None:
        """Let the next URL be the one with this number, from 0."""
        self._next = number

    async def one_at_a_time(self, urls: Sequence[str], step_s: float = 0.01) -> tuple[Sent, dict[str, float]]:
        """Submit a job, wait until it is done, submit the next; what was sent, and when each was done."""
        sent = Sent()
        done: dict[str, float] = {}
        for url in urls:
            [job_id] = await self._submit([url], sent)
            done |= await self.wait([job_id], 60.0, step_s)
        return sent, done

    async def flood(self, urls: Sequence[str], batch: int, lanes: int) -> Sent:
        """Submit `urls`, `batch` of them a request, on `lanes` connections, as fast as accepted."""
        sent = Sent()
        batches = iter([list(urls[start : start + batch]) for start in range(0, len(urls), batch)])
        await asyncio.gather(*(self._lane(batches, sent) for _ in range(lanes)))
        return sent

    async def at_moments(self, urls: Sequence[str], moments: Sequence[float]) -> Sent:
        """Submit each of `urls` alone at its moment, in seconds from now, whether or not others are done."""
        sent = Sent()
        began = time.monotonic()

        async def one(url: str, moment: float) -> None:
            await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
            await self._submit([url], sent)

        await asyncio.gather(*(one(url, moment) for url, moment in zip(urls, moments, strict=True)))
        return sent

    async def wait(self, job_ids: Sequence[str], timeout_s: float, step_s: float) -> dict[str, float]:
        """Return when each job was done, epoch seconds of the database's clock. Raises PipelineFailed."""
        deadline = time.monotonic() + timeout_s
        while True:
            done = await asyncio.to_thread(self._outcomes, list(job_ids))
            if len(done) == len(job_ids):
                return done
            if time.monotonic() > deadline:
                raise PipelineFailed(
                    f"{len(job_ids) - len(done)} of {len(job_ids)} jobs were not done in time"
                )
            await asyncio.sleep(step_s)

    def chunk_counts(self) -> dict[str, int]:
        """Return the chunks of all documents, and how many of them repeat an earlier one's text."""
        row = self._database.execute(_CHUNKS).fetchone()
        return {"kept": int(row[0]), "repeated": int(row[1])} if row else {}

    async def _lane(self, batches: Iterator[list[str]], sent: Sent) -> None:
        for urls in batches:
            await self._submit(urls, sent)

    async def _submit(self, urls: Sequence[str], sent: Sent) -> list[str]:
        body: dict[str, Any] = {"url": urls[0]} if len(urls) == 1 else {"urls": list(urls)}
        # The same pages over and over, on purpose.
        body["force"] = self.force
        while True:
            began, clock = time.time(), time.perf_counter()
            async with self._http.post(self._info["gateway"] + _SUBMIT, json=body) as answer:
                if answer.status in (429, 503):
                    sent.refused += 1
                    await asyncio.sleep(float(answer.headers.get("Retry-After", "0.1")))
                    continue
                if answer.status != 202:
                    raise PipelineFailed(f"submit answered {answer.status}: {(await answer.text())[:500]}")
                accepted = await answer.json()
            sent.took_s.append(time.perf_counter() - clock)
            job_ids: list[str] = accepted.get("job_ids") or [accepted["job_id"]]
            if len(job_ids) != len(urls):
                raise PipelineFailed(f"{len(urls)} URLs became {len(job_ids)} jobs")
            sent.at |= dict.fromkeys(job_ids, began)
            return job_ids

    def _outcomes(self, job_ids: list[str]) -> dict[str, float]:
        done = {}
        for job_id, status, finished, chunks, error in self._database.execute(_OUTCOMES, (job_ids,)):
            if status == "failed":
                raise PipelineFailed(f"job {job_id} failed: {error}")
            if status == "done":
                if not chunks:
                    raise PipelineFailed(f"job {job_id} is done without a chunk")
                done[job_id] = finished
        return done


def latencies(sent: Sent, done: Mapping[str, float]) -> dict[str, float]:
    """p50 and p95 from before the request until `done`, milliseconds."""
    values = sorted(done[job_id] - began for job_id, began in sent.at.items())
    return {"p50_ms": _percentile(values, 0.5), "p95_ms": _percentile(values, 0.95)}


def accept_p50_ms(sent: Sent) -> float:
    """Half of the submits were answered in this time."""
    return _percentile(sorted(sent.took_s), 0.5)


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Milliseconds; the same rule as the peers' benchmark."""
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3, 1)

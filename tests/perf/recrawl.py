"""CPU of a crawl of a site that did not change, beside that of conditional GETs and their applied results.

    python -m tests.perf.recrawl [--pages 200] [--links 20] [--rounds 5]

The real handlers run in this process on a real Postgres, MiniStack and a web site; their CPU and that of
Postgres' server processes count, those of the others do not. In each round the same pages, which are indexed
and did not change, are asked for twice: as jobs that were submitted before, of which only the fetches and the
applied results are measured, in full batches of ten; and as one crawl, of which all is measured from its
submit on. No chunk may be embedded and nothing written to S3 in either.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from local.template.template import CloudSpec
from tests.perf.reading import LIMIT_S, SUBMIT, Job, with_functions
from tests.support.events import api_event, caller_claims
from tests.support.repository import ROOT
from tools.reading import Trace

_CORPUS: Final = "recrawl"
_AT_ONCE: Final = 100
_WORDS: Final = "the keeper of the lantern wrote a letter beside the harbour window "


class Usage(Trace):
    """Takes the place of a trace: sums the CPU of this process and of Postgres by leg."""

    def __init__(self) -> None:
        super().__init__(ROOT)
        self.database = ""
        self.cpu_s: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def add(self, leg: str, files: Any) -> None:
        """Keep nothing: files are not counted here."""

    @contextmanager
    def leg(self, name: str) -> Iterator[None]:
        """Measure what runs in the block."""
        server, own = self._server_s(), time.process_time()
        yield
        self.cpu_s[name] += time.process_time() - own
        now = self._server_s()
        self.cpu_s["Postgres"] += sum(now[pid] - server.get(pid, 0.0) for pid in now)
        self.calls[name] += 1

    def reset(self) -> None:
        """Forget what was measured."""
        self.cpu_s.clear()
        self.calls.clear()

    def _server_s(self) -> dict[int, float]:
        """Return the CPU seconds of the server's processes that live, by pid."""
        if not hasattr(self, "_parent"):
            with psycopg.connect(self.database) as connection:
                row = connection.execute("SELECT pg_backend_pid()").fetchone()
                self._parent = _parent(row[0] if row else 0)
        return {pid: _cpu_s(pid) for pid in _children(self._parent)}


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]


def _cpu_s(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


@dataclass
class Round:
    """CPU seconds by leg, of one round."""

    apart: dict[str, float] = field(default_factory=dict)
    """Of the fetches and the applied results of jobs that were there before."""
    submitted: dict[str, float] = field(default_factory=dict)
    """Of their submit."""
    crawl: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """CPU of the crawl by that of the fetches and results alone."""
        return sum(self.crawl.values()) / sum(self.apart.values())


class Visits(Job):
    """Visits the pages of a site, as jobs of their own and as a crawl."""

    def __init__(self, usage: Usage, pages: int, *places: Any) -> None:
        super().__init__(*places, usage)
        self.usage, self.pages = usage, pages
        usage.database = self._database

    def crawl(self, site: str) -> None:
        """Crawl the site until each page's job has ended."""
        rules = {"max_pages": self.pages, "depth": 10}
        self._submit({"url": f"{site}/0.html", "kind": "crawl", "crawl": rules})

    def visit(self, site: str) -> dict[str, float]:
        """Submit all pages, forget what that took and return it, and consume queues until they have ended."""
        urls = [f"{site}/{at}.html" for at in range(self.pages)]
        for at in range(0, self.pages, _AT_ONCE):
            self._call({"urls": urls[at : at + _AT_ONCE]})
        took = dict(self.usage.cpu_s)
        self.usage.reset()
        self._consume_all()
        return took

    def ended(self) -> tuple[int, int]:
        """Return how many jobs are done, and how many of them found their page unchanged."""
        with psycopg.connect(self._database) as connection:
            statement = "SELECT count(*), count(unchanged) FROM jobs WHERE status = 'done'"
            row = connection.execute(statement).fetchone() or (0, 0)
        return row[0], row[1]

    def _submit(self, body: dict[str, Any]) -> None:
        self._call(body)
        self._consume_all()

    def _call(self, body: dict[str, Any]) -> None:
        wanted = {**body, "corpus_name": _CORPUS}
        event = api_event("POST", "/orchestrator/jobs", wanted, caller=caller_claims())
        answer = self._functions.call("OrchestratorApi", event, SUBMIT)
        if answer["statusCode"] != 202:
            raise RuntimeError(f"submit answered {answer}")

    def _consume_all(self) -> None:
        limit = time.monotonic() + LIMIT_S * 5
        while self._open():
            if time.monotonic() > limit:
                raise TimeoutError("jobs do not end")
            for queue, function in self._sources.items():
                self._deliver(queue, function)

    def _open(self) -> bool:
        with psycopg.connect(self._database) as connection:
            statement = "SELECT count(*) FROM jobs WHERE status NOT IN ('done', 'failed')"
            row = connection.execute(statement).fetchone()
        return bool(row and row[0])


def write_site(folder: Path, pages: int, links: int) -> None:
    """Write pages of 300 words, each with a navigation of so many links; together they lead to all."""
    for at in range(pages):
        further = [(at * links + 1 + step) % pages for step in range(links)]
        navigation = "".join(f'<a href="/{to}.html">page {to}</a> ' for to in further)
        text = f"<p>{_WORDS * 30} {at}</p>"
        html = f"<title>{at}</title><nav>{navigation}</nav><main><h1>{at}</h1>{text}</main>"
        (folder / f"{at}.html").write_text(html, encoding="utf-8")


def run(folder: Path, pages: int, links: int, rounds: int) -> list[Round]:
    """Return what each round took."""
    usage, found = Usage(), list[Round]()
    root = folder / "site"
    root.mkdir()
    write_site(root, pages, links)

    def take(site: str, visits: Visits) -> None:
        visits.crawl(site)
        if visits.ended() != (pages, 0):
            raise RuntimeError(f"{visits.ended()} of {pages} pages are indexed")
        for number in range(1, rounds + 1):
            one = Round()
            usage.reset()
            one.submitted = visits.visit(site)
            one.apart = dict(usage.cpu_s)
            usage.reset()
            visits.crawl(site)
            one.crawl = dict(usage.cpu_s)
            if visits.ended() != (pages * (1 + 2 * number), pages * 2 * number):
                raise RuntimeError(f"{visits.ended()} jobs after round {number}")
            found.append(one)

    def use(cloud: CloudSpec, ids: Mapping[str, str], database: str, endpoint: str) -> Callable[[str], None]:
        visits = Visits(usage, pages, cloud, ids, database, endpoint)
        return lambda site: take(site, visits)

    # Log lines are written as on AWS; they are not part of the output.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        asyncio.run(with_functions(folder, use, root, {"QuotaFree": "unlimited"}))
    return found


def report(found: list[Round], pages: int) -> Iterator[str]:
    """Yield the median CPU of a page in each way, by leg, and the ratio."""
    for title, name in (("apart", "apart"), ("submit", "submitted"), ("crawl", "crawl")):
        legs = sorted({leg for one in found for leg in getattr(one, name)})
        medians = {leg: statistics.median(getattr(one, name).get(leg, 0.0) for one in found) for leg in legs}
        shown = ", ".join(f"{leg} {seconds / pages * 1e3:.2f}" for leg, seconds in medians.items())
        yield f"{title:<7} {sum(medians.values()) / pages * 1e3:5.2f} CPU-ms / page: {shown}"
    ratios = sorted(one.ratio for one in found)
    yield f"ratio   {statistics.median(ratios):5.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def main() -> None:
    """Print the figures, and as the last line the ratio as JSON."""
    parser = argparse.ArgumentParser(description="Measure a crawl of a site that did not change.")
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--links", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="indexmill-recrawl-", ignore_cleanup_errors=True) as folder:
        found = run(Path(folder), options.pages, options.links, options.rounds)
    print("\n".join(report(found, options.pages)))
    print(json.dumps({"ratio": round(statistics.median(one.ratio for one in found), 2)}))


if __name__ == "__main__":
    main()

"""CPU of a job inside the functions, stage by stage and call by call.

    python -m tests.perf.stage_profile [--pages DIR] [--batches 10] [--top 12]

The real handlers run in this process on a real Postgres, MiniStack, a web site and the embedding stand-in,
with full batches of ten messages, warm; the CPU of those servers is not in it. The figure of a function is
measured without the profiler, which makes everything slower; the shares are measured with it.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from local.site.catalogue import PAGES_DIR
from local.template.template import CloudSpec
from tests.perf.page_server import load
from tests.perf.reading import LIMIT_S, SUBMIT, Job, executed, with_functions
from tests.support.events import api_event, caller_claims
from tests.support.repository import ROOT
from tools.reading import Trace

_BATCH: Final = 10
_WARM: Final = 2
_PACKAGES: Final = ("indexmill", "psycopg", "boto", "httpx", "openai", "selectolax")


@dataclass(slots=True)
class Leg:
    """One function: of all its invocations, CPU without and with the profiler, and statements."""

    cpu_s: float = 0.0
    calls: int = 0
    statements: int = 0
    profile: cProfile.Profile = field(default_factory=lambda: cProfile.Profile(time.process_time))


class Profiles(Trace):
    """Takes the place of a trace: profiles each function while it handles an event."""

    def __init__(self) -> None:
        super().__init__(ROOT)
        self.by_leg: dict[str, Leg] = {}
        self.mode = "warm"
        """`warm` measures nothing, `plain` CPU alone, `profiled` the calls too."""

    def add(self, leg: str, files: Iterable[str]) -> None:
        """Keep nothing: files are not counted here."""

    @contextmanager
    def leg(self, name: str) -> Iterator[None]:
        """Measure what runs in the block."""
        found = self.by_leg.setdefault(name, Leg())
        if self.mode == "warm":
            yield
        elif self.mode == "plain":
            began = time.process_time()
            yield
            found.cpu_s += time.process_time() - began
            found.calls += 1
        else:
            with executed() as statements:
                found.profile.enable()
                try:
                    yield
                finally:
                    found.profile.disable()
            found.statements += len(statements)


class Batches(Job):
    """Takes batches of jobs through the functions."""

    def take(self, urls: list[str]) -> None:
        """Submit `urls` and consume queues until their jobs are done. Raises TimeoutError."""
        body: dict[str, Any] = {"urls": urls, "corpus_name": "profile", "force": True}
        event = api_event("POST", "/orchestrator/jobs", body, caller=caller_claims())
        answer = self._functions.call("OrchestratorApi", event, SUBMIT)
        if answer["statusCode"] != 202:
            raise RuntimeError(f"submit answered {answer}")
        limit = time.monotonic() + LIMIT_S
        for job_id in json.loads(answer["body"])["job_ids"]:
            while (status := self._status(job_id)) != "done":
                if status == "failed" or time.monotonic() > limit:
                    raise TimeoutError(f"a job is {status}")
                for queue, function in self._sources.items():
                    self._deliver(queue, function)


def run(folder: Path, pages: Path, batches: int) -> dict[str, Leg]:
    """Return what the functions did for so many batches without the profiler, and as many with it."""
    profiles = Profiles()
    names = list(load(pages))

    def take(site: str, taker: Batches) -> None:
        for number in range(_WARM + 2 * batches):
            profiles.mode = "warm" if number < _WARM else "plain" if number < _WARM + batches else "profiled"
            first = number * _BATCH
            taker.take([f"{site}/{names[at % len(names)]}?n={at}" for at in range(first, first + _BATCH)])

    def use(cloud: CloudSpec, ids: Mapping[str, str], database: str, endpoint: str) -> Callable[[str], None]:
        taker = Batches(cloud, ids, database, endpoint, profiles)
        return lambda site: take(site, taker)

    # Log lines are written as on AWS; they are not part of the output.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        asyncio.run(with_functions(folder, use, pages, {"QuotaFree": "unlimited"}))
    return profiles.by_leg


def report(legs: dict[str, Leg], jobs: int, top: int) -> Iterator[str]:
    """Yield each function's CPU per job and its most expensive calls, by their own time and by all of it."""
    for name, leg in legs.items():
        stats = pstats.Stats(leg.profile)
        rows = stats.stats  # type: ignore[attr-defined]
        total = sum(row[2] for row in rows.values()) or 1.0
        yield ""
        yield (
            f"{name}: {leg.cpu_s / jobs * 1e3:.2f} CPU-ms / job in {leg.calls / jobs:.2f} invocations, "
            f"{leg.statements / jobs:.2f} statements / job"
        )
        yield "  share of its CPU, with what it calls:"
        own = {key: row for key, row in rows.items() if any(each in key[0] for each in _PACKAGES)}
        for key, row in sorted(own.items(), key=lambda item: -item[1][3])[:top]:
            yield f"    {min(1.0, row[3] / total):6.1%}  {row[0] / jobs:8.1f} calls  {_place(key)}"
        yield "  alone:"
        for key, row in sorted(rows.items(), key=lambda item: -item[1][2])[:top]:
            yield f"    {row[2] / total:6.1%}  {row[0] / jobs:8.1f} calls  {_place(key)}"


def _place(key: tuple[str, int, str]) -> str:
    path, line, name = key
    if path == "~":
        return name
    short = path.rpartition("/python/")[2] if "/python/" in path else "/".join(path.split("/")[-2:])
    return f"{short}:{line} {name}"


def main() -> None:
    """Profile and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--pages", type=Path, default=PAGES_DIR, metavar="DIR")
    parser.add_argument("--batches", type=int, default=10, help="of ten jobs each")
    parser.add_argument("--top", type=int, default=12, help="calls to list for each function")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="indexmill-profile-", ignore_cleanup_errors=True) as name:
        legs = run(Path(name), chosen.pages, chosen.batches)
    print("\n".join(report(legs, chosen.batches * _BATCH, chosen.top)))


if __name__ == "__main__":
    main()

"""Pages of slow sites beside those of another one: `python -m tests.perf.politeness [--urls 1000]`.

Four callers submit the pages of a slow site each, at the default pace (a request a second, three at once
after a pause). One of them also submits pages of a site without a limit, which take 0.3 s each: their pace
beside the others' backlog, as a ratio of their pace alone. The slow sites note when they are asked.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from typing import Any, Final

import psycopg

from indexmill.client import Client
from tests.support.stack import RunningStack, eventually, running_stack
from tests.support.timed_site import TimedSite, excess, timed_site

_CALLERS: Final = 4
_BATCH: Final = 100
_RATE, _BURST = 1.0, 3
_PAGE_S: Final = 0.3


def pages_per_second(stack: RunningStack, client: Client, site: TimedSite, count: int, name: str) -> float:
    """Return the pace of so many pages of a site, submitted one after the other ends, eight at a time."""
    waiting = [f"{name}-{at}" for at in range(count)]
    began, flying = time.monotonic(), list[str]()
    while waiting or flying:
        while waiting and len(flying) < 8:
            flying.append(client.submit(site.url(waiting.pop()), "other").job_id)
        with psycopg.connect(stack.database_url) as database:
            done = database.execute(
                "SELECT id, status FROM jobs WHERE id = ANY(%s) AND status IN ('done', 'failed')", [flying]
            ).fetchall()
        if any(status == "failed" for _, status in done):
            raise SystemExit("a page failed")
        flying = [each for each in flying if (each, "done") not in done]
        time.sleep(0.05)
    took_s = time.monotonic() - began
    print(f"{name}: {count} pages in {took_s:.1f} s", file=sys.stderr)
    return count / took_s


def measure(urls: int, count: int, seconds: float) -> dict[str, Any]:
    """Return the figures."""
    with ExitStack() as opened:
        slow = [opened.enter_context(timed_site()) for _ in range(_CALLERS)]
        other = opened.enter_context(timed_site(took_s=_PAGE_S))
        hosts = ",".join(site.host for site in (*slow, other))
        parameters = (f"AllowedPrivateHosts={hosts}", f"DomainRates=*=1:3,{other.host}=unlimited")
        stack = opened.enter_context(running_stack(*parameters))
        keys = [stack.new_key("enterprise") for _ in slow]
        clients = [Client(stack.gateway, key) for key in keys]
        pages_per_second(stack, clients[0], other, count // 4, "warm")
        alone = pages_per_second(stack, clients[0], other, count, "alone")
        for client, site in zip(clients, slow, strict=True):
            for first in range(0, urls, _BATCH):
                client.submit([site.url(at) for at in range(first, first + _BATCH)], "slow")
        began = time.monotonic()
        beside = pages_per_second(stack, clients[0], other, count, "beside")
        again = pages_per_second(stack, clients[0], other, count, "beside-again")
        eventually(lambda: time.monotonic() - began > seconds, "the time is over", seconds + 60)
        with psycopg.connect(stack.database_url) as database:
            found = database.execute("SELECT count(*) FROM dead_letters").fetchone()
            flying = database.execute(
                "SELECT count(*) FROM jobs WHERE status NOT IN ('pending', 'done', 'failed')"
            ).fetchone()
        queues = stack.status()["queues"]
        return {
            "urls_of_slow_sites": urls * _CALLERS,
            "seconds": round(time.monotonic() - began),
            "requests_of_each_site": [len(site.asked) for site in slow],
            "worst_window_beyond_the_rate": [round(excess(site.asked, _RATE, _BURST), 3) for site in slow],
            "dead_letters": found[0] if found else None,
            "in_flight_at_the_end": flying[0] if flying else None,
            "visible": {name: queue["visible"] for name, queue in queues.items() if queue["visible"]},
            "pages_per_second_alone": round(alone, 2),
            "pages_per_second_beside": [round(beside, 2), round(again, 2)],
            "ratio": [round(beside / alone, 2), round(again / alone, 2)],
        }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--urls", type=int, default=1_000, help="of each slow site")
    parser.add_argument("--count", type=int, default=200, help="pages of the other site")
    parser.add_argument("--seconds", type=float, default=60.0, help="least time beside the backlog")
    given = parser.parse_args()
    print(json.dumps(measure(given.urls, given.count, given.seconds), indent=1))


if __name__ == "__main__":
    main()

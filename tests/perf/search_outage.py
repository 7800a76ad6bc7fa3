"""Time that a search loses while the embedding endpoint hangs: `python -m tests.perf.search_outage`.

Starts the local cloud, indexes pages of its demo site, and searches while the endpoint takes requests and
sends nothing. `timings.embed_ms` of a search is what the question's embedding added to it: with the breaker
open a refusal, without the two seconds of each question that an environment asks first, and of one probe each
30 s.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Final
from uuid import uuid4

import httpx

from indexmill.client import Client
from tests.perf.stack_under_test import stack

_PAGES: Final = ("/collections/bookboat.html", "/collections/telescopes.html", "/visit/opening-hours.html")
_WORDS: Final = ("barge", "telescope", "opening hours", "jetty")
_TRIED_MS: Final = 1_500
"""Of a question for which the endpoint was asked."""


def _searched(client: Client, seconds: float) -> list[tuple[float, int, str | None]]:
    """Search for `seconds`; return the time of the whole search, of its embedding (ms) and what it lacks."""
    found, ends, at = [], time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        began = time.monotonic()
        # A question that was asked before would need no endpoint.
        answer = client.search(f"{_WORDS[at % len(_WORDS)]} {uuid4().hex}")
        found.append((1_000 * (time.monotonic() - began), answer.timings.embed_ms, answer.degraded))
        at += 1
        time.sleep(0.05)
    return found


def _line(name: str, values: list[float]) -> str:
    cuts = statistics.quantiles(values, n=100) if len(values) > 1 else values * 99
    return (
        f"{name:<34} n={len(values):<5} p50 {cuts[49]:7.1f}  p95 {cuts[94]:7.1f}  max {max(values):7.1f} ms"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=75.0, help="length of the outage")
    options = parser.parse_args()
    with stack([]) as started:
        info = started.info
        client = Client(info["gateway"], info["api_key"])
        client.wait(client.submit([info["site"] + page for page in _PAGES]).job_ids or (), 120)
        well = _searched(client, 10)
        control = info["embeddings"].removesuffix("/v1") + "/control"
        before = httpx.get(control).json()["requests"]
        httpx.post(control, json={"mode": "hang"}).raise_for_status()
        ill = _searched(client, options.seconds)
        asked = httpx.get(control).json()["requests"] - before
        httpx.post(control, json={"mode": "ok"}).raise_for_status()
    tried = [each for each in ill if each[1] >= _TRIED_MS]
    refused = [each for each in ill if each[1] < _TRIED_MS]
    print(_line("well: search", [each[0] for each in well]))
    print(_line("well: of that, the embedding", [float(each[1]) for each in well]))
    print(_line("breaker open: search", [each[0] for each in refused]))
    print(_line("breaker open: added by embedding", [float(each[1]) for each in refused]))
    print(_line("asked all the same: search", [each[0] for each in tried]))
    print(
        f"{asked} requests to the endpoint in {options.seconds:g} s; "
        f"{sum(each[2] is None for each in ill)} answers not marked"
    )


if __name__ == "__main__":
    main()

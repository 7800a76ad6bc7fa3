"""Every field of every endpoint with each hostile value: a coded answer that repeats nothing."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector
from yarl import URL

from tests.support import openapi
from tests.support.hostile import BODY_VALUES, HEADER_VALUES, TEXT_VALUES, Attempt, attempts
from tests.support.refusals import MARK
from tests.support.stack import RunningStack, drained, running_stack

pytestmark = pytest.mark.e2e

_AT_ONCE = 6
_SHARE = 21
"""make test sends one of 21, others in each place, and all of the worst; make test-long sends all."""
_LONGEST = 2048
"""Bytes of a refusal."""


@pytest.fixture(scope="module")
def hostile_stack() -> Iterator[RunningStack]:
    with running_stack() as running:
        yield running


def wrong(attempt: Attempt, status: int, headers: Any, body: bytes) -> list[str]:
    """Return what is wrong with an answer."""
    if status < 400:
        return []
    what = f"{attempt.method} {attempt.path} {attempt.place}: {status} {body[:200]!r}"
    try:
        code = json.loads(body)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return [f"no envelope: {what}"]
    promised = openapi.document()["paths"][attempt.path][attempt.method.lower()]["responses"]
    problems = {
        "server error": status >= 500 and (status not in (503, 504) or "Retry-After" not in headers),
        "unknown code": code not in openapi.error_codes(),
        "undocumented": str(status) not in promised and not _of_another_path(attempt, status),
        "echo": MARK.encode() in body or len(body) > _LONGEST,
    }
    return [f"{problem}: {what}" for problem, found in problems.items() if found]


def _of_another_path(attempt: Attempt, status: int) -> bool:
    """Return whether a value in the path made it another one, or the URL too long for the gateway."""
    return attempt.place.startswith(("path.", "query.")) and status in (404, 414)


async def sent(stack: RunningStack, chosen: Iterable[Attempt]) -> tuple[list[str], Counter[tuple[str, int]]]:
    """Send all; return what was wrong, and how often each path answered with each status."""
    waiting, problems = iter(chosen), list[str]()
    seen: Counter[tuple[str, int]] = Counter()
    key = {"X-API-Key": stack.ops_key}

    async def sender(session: ClientSession) -> None:
        for attempt in waiting:
            headers = {**key, **attempt.headers}
            if attempt.body is not None:
                headers.setdefault("Content-Type", "application/json")
            url = URL(f"{stack.gateway}{attempt.url}", encoded=True)
            status = 429
            while status == 429:  # the route's throttle
                async with session.request(attempt.method, url, data=attempt.body, headers=headers) as answer:
                    status, body = answer.status, await answer.read()
                await asyncio.sleep(int(answer.headers["Retry-After"]) if status == 429 else 0)
            problems.extend(wrong(attempt, status, answer.headers, body))
            seen[attempt.path, status] += 1

    async with ClientSession(connector=TCPConnector(limit=_AT_ONCE), auto_decompress=False) as session:
        await asyncio.gather(*(sender(session) for _ in range(_AT_ONCE)))
    return problems, seen


def checked(stack: RunningStack, chosen: list[Attempt]) -> None:
    before = errors(stack)
    problems, seen = asyncio.run(sent(stack, chosen))
    assert problems == []
    assert {status for _, status in seen} >= {200, 202, 400, 404, 422}
    drained(stack)
    assert errors(stack) == before


def errors(stack: RunningStack) -> dict[str, int]:
    """Return how often each function failed."""
    return {name: function["errors"] for name, function in stack.status()["functions"].items()}


def test_the_list_is_long_and_every_place_is_on_it(hostile_stack: RunningStack) -> None:
    assert min(len(BODY_VALUES), len(TEXT_VALUES)) >= 60
    assert len(HEADER_VALUES) >= 40
    places = {(each.path, each.place) for each in attempts("https://a.example/")}
    operations = openapi.document()["paths"]
    assert {path for path, methods in operations.items() if "parameters" in str(methods)} <= {
        p for p, _ in places
    }


@pytest.mark.shows("B9", "B10", "B14", "B82", "B84")
def test_no_hostile_value_is_a_server_error(hostile_stack: RunningStack) -> None:
    every = list(attempts(f"{hostile_stack.site}/handbook.html"))
    chosen = [each for number, each in enumerate(every) if each.is_worst or number % _SHARE == 0]
    checked(hostile_stack, chosen)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_hostile_value_at_all_is_a_server_error(hostile_stack: RunningStack) -> None:
    checked(hostile_stack, list(attempts(f"{hostile_stack.site}/handbook.html")))

"""Requests and items of each owner of the state table: recorded, since releases share the table."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from indexmill.access.identify import Roots
from indexmill.orchestrator.queries.stream import StreamPlaces
from indexmill.orchestrator.store.sweep import CallerRow, Maintenance
from indexmill.orchestrator.sweeper.sweep import Mirror
from indexmill.platform.aws.state_table import StoreClock
from indexmill.platform.breakers import BreakerState, BreakerStates
from indexmill.platform.consumer.delivery_log import DeliveryLog, DeliveryRecord
from indexmill.platform.limits.store import LimitStore, QueueAges
from indexmill.platform.limits.window import RequestAdmission
from indexmill.platform.progress import Cancels, ProgressBoard, WorkProgress
from indexmill.scraper.token_bucket import HostState, HostStates, KnownRobots, RobotsCache
from tests.twins.clock import FrozenClock
from tests.twins.dynamodb import MemoryDynamoDb

RECORDED = Path(__file__).with_name("state_items.json")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<=#)[0-9a-f]{32}")


def limits(client: MemoryDynamoDb, clock: FrozenClock) -> None:
    store, key = LimitStore("state", StoreClock(clock), client), "scraper#work#ann"
    for slot in (1_000, 1_000, 1_000):
        store.admit(key, RequestAdmission(slot, 2, 2, 9_999_999_999))
    store.admit(key, RequestAdmission(7_000, 5, 6, 9_999_999_999, (1, 5), (1_000, 1_001), 44))
    store.admit(key, RequestAdmission(7_000, 5, 6, 9_999_999_999, (8, 9)))
    store.forget(key, [7_000, 7_001])
    store.is_blocked(key)
    store.move_active("scraper", "work", None, 7, [])
    store.move_active("scraper", "work", 7, 8, [5, 6])
    store.shared("scraper")
    store.read([key, "scraper#read#ann"], ["scraper", "chunking"])


def breakers(client: MemoryDynamoDb, clock: FrozenClock) -> None:
    states, now = BreakerStates("state", clock, client), clock.now().timestamp()
    failed = BreakerState().failed(now, "It refuses us (HTTP 401).")
    states.replace("index", BreakerState(), failed)
    states.replace("index", BreakerState(), failed)
    states.replace("index", failed, failed.closed(now + 30.5))
    states.replace("embedding", BreakerState(), BreakerState(1, 1e9, version=1))
    states.read()


def cancels(client: MemoryDynamoDb, clock: FrozenClock) -> None:
    marks = Cancels("state", clock, client)
    marks.mark({f"job-{at}": at for at in range(1, 28)})
    marks.canceled(["job-1", "job-2", "job-1", "other"])


def delivery_log(client: MemoryDynamoDb, clock: FrozenClock) -> None:
    log = DeliveryLog("state", clock, client)
    waiting = DeliveryRecord(3, 2, 1, tried_alone=True, last_error="http_503", resume="pages=4")
    log.write({"a": waiting, "b": DeliveryRecord()})
    log.write({f"m{at}": DeliveryRecord(at) for at in range(26)})
    log.read(["a", "b", "a", "c"])


def progress(client: MemoryDynamoDb, clock: FrozenClock) -> None:
    board = ProgressBoard("state", clock, client)
    board.put("job", WorkProgress(attempt=1, chunks_total=1_000, chunks_done=256, bytes=2_000))
    board.get("job")


def queue_ages(client: MemoryDynamoDb, clock: FrozenClock) -> None:
    ages = QueueAges("state", clock, client)
    ages.note("scraping", 300.25)
    clock.tick(5)
    ages.note("scraping", 12.0)
    ages.note("embedding", 20)
    ages.oldest("scraping")


def mirror(client: MemoryDynamoDb, clock: FrozenClock) -> None:
    copy = Mirror("state", clock, client)
    copy.exists()
    copy.begin()
    copy.put(CallerRow("ann", "root", None, unblocked=False, version=1))
    copy.put(CallerRow("bob", "bob", "abuse", unblocked=False, version=2))
    copy.put(CallerRow("bob", "bob", None, unblocked=True, version=3))
    copy.put(CallerRow("bob", "old", None, unblocked=False, version=1))
    copy.put_maintenance(Maintenance("We move.", 4))
    copy.put_maintenance(Maintenance(None, 5))


def windows(client: MemoryDynamoDb, clock: FrozenClock) -> None:
    places = StreamPlaces("state", 2, clock, client)
    first, _, _ = places.enter(25.5), places.enter(30), places.enter(30)
    clock.tick(28)
    places.enter(25)
    places.leave(first or "")


def roots(client: MemoryDynamoDb, _clock: FrozenClock) -> None:
    client.items["caller#ann"] = {"pk": {"S": "caller#ann"}, "root": {"S": "root"}}
    assert Roots("state", client).find(["ann", "bob"]) == {"ann": "root"}


def hosts(client: MemoryDynamoDb, clock: FrozenClock) -> None:
    states = HostStates("state", StoreClock(clock), client)
    state = HostState(12.5, {"m": 14.2512}, {"r": 40.125}, 2, 99.0, "http_503")
    states.replace("example.com", 0, HostState())
    states.replace("example.com", 1, state)
    states.replace("example.com", 1, HostState())


def robots(client: MemoryDynamoDb, clock: FrozenClock) -> None:
    cache, now = RobotsCache("state", clock, client), clock.now().timestamp()
    cache.put("https://example.com", KnownRobots("Disallow: /ä\nAllow: /b", now + 30, now + 60))
    cache.put("https://example.org", KnownRobots(None, now + 30, now + 60))
    cache.get("https://example.com")


OWNERS: list[Callable[[MemoryDynamoDb, FrozenClock], None]] = [
    *(limits, breakers, cancels, delivery_log, progress, queue_ages),
    *(mirror, windows, roots, hosts, robots),
]


def written(value: Any) -> str:
    """Return JSON without the ids, which differ in each run."""
    text = json.dumps(value, sort_keys=True, default=lambda data: base64.b64encode(data).decode())
    return _ID.sub("ID", text)


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.__name__)
def test_requests_and_items_are_as_recorded(owner: Callable[[MemoryDynamoDb, FrozenClock], None]) -> None:
    client, clock = MemoryDynamoDb(), FrozenClock()
    clock.tick(0.25)
    owner(client, clock)
    found = json.loads(written({"requests": client.requests, "items": list(client.items.values())}))
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert found == recorded[owner.__name__]

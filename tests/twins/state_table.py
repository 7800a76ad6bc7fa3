"""Owners of the state table on a table in memory, with what tests want to know of it."""

from __future__ import annotations

from collections.abc import Mapping

from indexmill.access.identify import Roots
from indexmill.orchestrator.queries.stream import StreamPlaces
from indexmill.orchestrator.sweeper.sweep import Mirror
from indexmill.platform.aws.state_table import StoreClock
from indexmill.platform.breakers import BreakerStates
from indexmill.platform.consumer.delivery_log import DeliveryLog
from indexmill.platform.limits.store import LimitStore, QueueAges, _window
from indexmill.platform.limits.window import Window
from indexmill.platform.progress import ProgressBoard, WorkProgress
from indexmill.platform.security.urls import DomainRates
from indexmill.platform.time import Clock, SystemClock
from indexmill.scraper.rate_limit import RateLimiter
from indexmill.scraper.token_bucket import HostState, HostStates, _known
from tests.twins.clock import FrozenClock
from tests.twins.dynamodb import MemoryDynamoDb


class InMemory:
    """`unavailable` makes the table unreachable; `reads` and `writes` count requests."""

    client: MemoryDynamoDb

    @property
    def unavailable(self) -> bool:
        return self.client.unavailable

    @unavailable.setter
    def unavailable(self, unavailable: bool) -> None:
        self.client.unavailable = unavailable

    @property
    def reads(self) -> int:
        return self.client.count("GetItem", "BatchGetItem")

    @property
    def writes(self) -> int:
        return self.client.count("PutItem", "UpdateItem", "BatchWriteItem")


class InMemoryBreakers(InMemory, BreakerStates):
    def __init__(self) -> None:
        self.client = MemoryDynamoDb()
        super().__init__("state", FrozenClock(), self.client)


class InMemoryDeliveryLog(InMemory, DeliveryLog):
    def __init__(self, clock: Clock | None = None) -> None:
        self.client = MemoryDynamoDb()
        super().__init__("state", clock or FrozenClock(), self.client)


class InMemoryHosts(InMemory, HostStates):
    def __init__(self) -> None:
        self.client = MemoryDynamoDb()
        super().__init__("state", StoreClock(SystemClock()), self.client)

    def state(self, site: str) -> HostState:
        """Return the state of a site."""
        return _known(self._table.get(f"host#{site}"))[1]


def unlimited_pace(clock: Clock) -> RateLimiter:
    """Return a pace that holds back nothing."""
    return RateLimiter(DomainRates(), InMemoryHosts(), StoreClock(clock))


class InMemoryLimits(InMemory, LimitStore):
    def __init__(self, clock: Clock | None = None) -> None:
        """With a `clock` the answers tell its time."""
        self.client = MemoryDynamoDb(clock)
        super().__init__("state", StoreClock(FrozenClock()), self.client)

    @property
    def calls(self) -> int:
        return self.client.count()

    @property
    def windows(self) -> dict[str, Window | None]:
        """The windows by their keys."""
        keys = [key for key in self.client.items if key.startswith("door#") and key != "door#maintenance"]
        return {key.partition("#")[2]: _window(self._table.get(key, expired=True)) for key in keys}

    def block(self, key: str) -> None:
        """Block a caller."""
        item = self.client.items.setdefault(f"door#{key}", {"pk": {"S": f"door#{key}"}})
        item["blocked"] = {"S": "abuse"}

    def announce(self, message: str | None) -> None:
        """Begin a maintenance, or end it."""
        item = {"pk": {"S": "door#maintenance"}, **({"message": {"S": message}} if message else {})}
        self.client.items["door#maintenance"] = item


def in_memory_mirror() -> Mirror:
    """Return a copy of callers and maintenance that begins empty."""
    return Mirror("state", FrozenClock(), MemoryDynamoDb())


class InMemoryProgress(InMemory, ProgressBoard):
    """`put_items` is what was ever put."""

    def __init__(self, clock: Clock) -> None:
        self.client = MemoryDynamoDb()
        self.put_items: list[tuple[str, WorkProgress]] = []
        super().__init__("state", clock, self.client)

    def put(self, job_id: str, progress: WorkProgress) -> None:
        self.put_items.append((job_id, progress))
        super().put(job_id, progress)


class InMemoryQueueAges(InMemory, QueueAges):
    def __init__(self, clock: Clock) -> None:
        self.client = MemoryDynamoDb()
        super().__init__("state", clock, self.client)


class InMemoryRoots(InMemory, Roots):
    """Roots by id."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self.client = MemoryDynamoDb()
        self.know(known or {})
        super().__init__("state", self.client)

    def know(self, roots: Mapping[str, str]) -> None:
        """Copy these."""
        for each, root in roots.items():
            self.client.items[f"caller#{each}"] = {"pk": {"S": f"caller#{each}"}, "root": {"S": root}}


class InMemoryPlaces(InMemory, StreamPlaces):
    """`taken` are the places that are not given back."""

    def __init__(self, limit: int, clock: Clock, client: MemoryDynamoDb | None = None) -> None:
        self.client = client or MemoryDynamoDb()
        super().__init__("state", limit, clock, self.client)

    @property
    def taken(self) -> list[str]:
        return list(self.client.items.get("stream-windows", {}).get("places", {"SS": []})["SS"])

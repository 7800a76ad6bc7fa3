"""Refusals of a request: the one that wins when several apply, and what it counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import pytest
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from indexmill.platform.http.app import Caller, create_app, lambda_handler
from indexmill.platform.http.guard import Guard, json_route, scoped
from indexmill.platform.limits.enforcer import Backpressure, key_of
from indexmill.platform.limits.policy import PressureSettings
from indexmill.platform.limits.store import Load
from indexmill.platform.limits.window import Window
from indexmill.platform.observability import Observability
from local.metrics.emf import read
from tests.support.events import FakeContext, api_event, caller_claims
from tests.support.limits import CALLER, SERVICE, process
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryLimits

MOST_BYTES = 2_000
PATH = "/things/jobs"
KEY = key_of(SERVICE, "work", CALLER.caller_id)


class Thing(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(max_length=20)
    count: int = Field(default=1, ge=1, le=100)
    job_type: str = "index"


class Service:
    """A service with one route that accepts work, and a request to it that nothing refuses yet."""

    def __init__(self) -> None:
        self.clock, self.store = FrozenClock(), InMemoryLimits()
        self.waiting, self.loads, self.handled = 0, 0, 0
        self.query: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        self.claims: dict[str, str] | None = {**caller_claims(CALLER.caller_id), "tier": "pro"}
        self.keys = ["one"]
        self.thing: dict[str, Any] = {"name": "x"}
        self.text: Callable[[str], str] = str
        self.padding = ""

    def load(self) -> Load:
        self.loads += 1
        return Load(self.waiting)

    def send(self, method: str = "POST", path: str = PATH) -> dict[str, Any]:
        """Return the answer of a new execution environment."""
        router = APIRouter(prefix="/things", route_class=json_route(MOST_BYTES))

        @router.post("/jobs", status_code=202, openapi_extra=scoped("orchestrator:write"))
        @router.post("/reports", status_code=202, openapi_extra=scoped("orchestrator:write"))
        async def make(body: Thing, _ctx: Caller) -> Thing:
            self.handled += 1
            return body

        observability = Observability("test", level="CRITICAL")
        own = process(self.store, self.clock)
        bounds = PressureSettings(max_queue_depth=100, max_queue_age_seconds=100, state_table="none")
        pressure = Backpressure(self.load, bounds, self.clock, observability, routes=[("POST", PATH)])
        guard = Guard(own.enforcer, observability, exempt=["/things/reports"], pressure=pressure)
        handle = lambda_handler(create_app([router], observability, guard), observability)
        text = self.text(json.dumps(self.thing)) + self.padding
        event = api_event(
            method, path, raw=text, headers=self.headers, query=self.query or None, caller=self.claims
        )
        event["multiValueHeaders"]["X-API-Key"] = self.keys
        return dict(handle(event, FakeContext()))

    # One violation each; those of the body can hold together.

    def unknown_parameter(self) -> None:
        self.query = {"unknown": "1"}

    def no_scope(self) -> None:
        self.claims = {**(self.claims or {}), "granted_scopes": '["orchestrator:read","embedding:delete"]'}

    def no_scope_for_a_value(self) -> None:
        self.claims = {**(self.claims or {}), "granted_scopes": '["orchestrator:write","embedding:write"]'}
        self.thing["job_type"] = "delete"

    def two_keys(self) -> None:
        self.keys = ["one", "two"]

    def no_caller(self) -> None:
        self.claims = None

    def maintenance(self) -> None:
        self.store.announce("We move.")

    def full_queue(self) -> None:
        self.waiting = 1_000

    def block(self) -> None:
        self.store.block(KEY)

    def used_limit(self) -> None:
        other = process(self.store, self.clock)
        while other.admits():
            pass

    def media_type(self) -> None:
        self.headers = {"Content-Type": "text/plain"}

    def large_body(self) -> None:
        self.padding = " " * MOST_BYTES

    def malformed_json(self) -> None:
        self.text = lambda text: text[:-1]

    def wrong_field(self) -> None:
        self.thing["count"] = 0


@dataclass(frozen=True)
class Refusal:
    """Answer to a refused request, and what it leaves behind."""

    status: int
    code: str
    metrics: frozenset[str] = frozenset()
    loads: int = 1
    """How often the load was read."""
    admitted: int = 0
    """How many requests the caller's limit has counted."""
    tells_limit: bool = False


_NONE: Final = {"loads": 0}
_COUNTED: Final = {"admitted": 1, "tells_limit": True}
REFUSALS: Final = {
    Service.no_caller: Refusal(401, "invalid_api_key", **_NONE),
    Service.maintenance: Refusal(503, "maintenance", **_NONE),
    Service.full_queue: Refusal(429, "queue_saturated", frozenset({"queue_saturated_total"})),
    Service.block: Refusal(403, "caller_blocked", frozenset({"caller_blocked_total"})),
    Service.used_limit: Refusal(429, "rate_limited", frozenset({"rate_limited_total"}), tells_limit=True),
    Service.no_scope: Refusal(403, "insufficient_scope", frozenset({"insufficient_scope_total"}), **_COUNTED),
    Service.two_keys: Refusal(401, "invalid_api_key", **_COUNTED),
    Service.unknown_parameter: Refusal(422, "validation_error", **_COUNTED),
    Service.media_type: Refusal(415, "unsupported_media_type", **_COUNTED),
    Service.large_body: Refusal(413, "payload_too_large", **_COUNTED),
    Service.malformed_json: Refusal(400, "malformed_json", **_COUNTED),
    Service.no_scope_for_a_value: Refusal(
        403, "insufficient_scope", frozenset({"insufficient_scope_total"}), **_COUNTED
    ),
    Service.wrong_field: Refusal(422, "validation_error", **_COUNTED),
}
"""By violation, in the order in which a request is checked."""


@pytest.fixture(autouse=True)
def _event_loop() -> Iterator[None]:
    """Give the main thread a loop, as Lambda's has; other tests leave it without one."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def admitted(service: Service) -> int:
    return (service.store.windows.get(KEY) or Window()).admitted


def refused(service: Service, capsys: pytest.CaptureFixture[str], path: str = PATH) -> Refusal:
    """Send the request and return what happened."""
    before, loads = admitted(service), service.loads
    answer = service.send(path=path)
    assert service.handled == 0
    return Refusal(
        answer["statusCode"],
        json.loads(answer["body"])["error"]["code"],
        frozenset(each.name for line in capsys.readouterr().out.splitlines() for each in read(line)),
        service.loads - loads,
        admitted(service) - before,
        "x-ratelimit-limit" in answer["headers"],
    )


@pytest.mark.shows("L15")
@pytest.mark.parametrize(
    "violations",
    [*((each,) for each in REFUSALS), *combinations(REFUSALS, 2)],
    ids=lambda violations: "-".join(each.__name__ for each in violations),
)
def test_the_first_refusal_answers_and_nothing_of_the_others_happens(
    violations: tuple[Callable[[Service], None], ...], capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service()
    # The order in which they come about does not count.
    for violate in reversed(violations):
        violate(service)
    assert refused(service, capsys) == REFUSALS[violations[0]]


@pytest.mark.parametrize(
    "granted", ['["orchestrator:write","embedding:delete"]', '["orchestrator:*","embedding:*"]', None]
)
def test_a_key_with_the_scopes_or_without_a_list_of_them_may(granted: str | None) -> None:
    service = Service()
    service.thing["job_type"] = "delete"
    if granted is not None:
        service.claims = {**(service.claims or {}), "granted_scopes": granted}
    assert (service.send()["statusCode"], service.handled) == (202, 1)


def test_an_internal_key_with_a_list_is_bound_to_it_where_no_limit_is_asked() -> None:
    service = Service()
    service.claims = {**caller_claims(CALLER.caller_id, internal=True), "granted_scopes": "[]"}
    error = json.loads(service.send(path="/things/reports")["body"])["error"]
    assert (error["code"], error.get("field"), service.handled) == ("insufficient_scope", None, 0)
    assert "orchestrator:write" in error["message"]
    service.claims["granted_scopes"] = '["orchestrator:write"]'
    service.thing["job_type"] = "delete"
    error = json.loads(service.send(path="/things/reports")["body"])["error"]
    assert (error["field"], service.handled) == ("body.job_type", 0)
    assert "embedding:delete" in error["message"]


def test_a_route_without_a_scope_is_not_made() -> None:
    router = APIRouter(route_class=json_route(MOST_BYTES))
    with pytest.raises(KeyError, match="security"):

        @router.get("/things")
        async def things() -> None: ...


def test_a_request_that_nothing_refuses_is_counted_once_and_handled_once() -> None:
    service = Service()
    answer = service.send()
    assert (answer["statusCode"], service.handled, admitted(service), service.loads) == (202, 1, 1, 1)
    assert answer["headers"]["x-ratelimit-remaining"] == "5"


def test_an_exempt_request_is_neither_limited_nor_counted_but_read_by_the_same_rules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    service = Service()
    for violate in (Service.maintenance, Service.full_queue, Service.used_limit, Service.block):
        violate(service)
    before = admitted(service)
    answer = service.send(path="/things/reports")
    assert (answer["statusCode"], service.handled, service.loads, admitted(service)) == (202, 1, 0, before)
    assert "x-ratelimit-limit" not in answer["headers"]
    service.handled = 0
    service.unknown_parameter()
    assert refused(service, capsys, "/things/reports") == Refusal(422, "validation_error", loads=0)

"""The client repeats what was refused, as Retry-After says, and nothing else."""

from __future__ import annotations

import json

import httpx
import pytest

from indexmill.client import ApiError, Client
from tests.twins.clock import FrozenClock


class Service:
    """Answers with errors in turn, then with an accepted job."""

    def __init__(self, *answers: tuple[int, str, int | None]) -> None:
        self.answers = list(answers)
        self.requests = 0

    def __call__(self, _request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if not self.answers:
            return httpx.Response(202, json={"job_id": "j-1", "url_count": 1})
        status, code, retry_after = self.answers.pop(0)
        error = {"code": code, "message": "No.", "request_id": "r-1", "retry_after": retry_after}
        return httpx.Response(status, text=json.dumps({"error": error}))


def client_of(service: Service, patience_s: float = 30.0) -> tuple[Client, list[float]]:
    clock = FrozenClock()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.tick(seconds)

    client = Client("http://service", "key", patience_s=patience_s, clock=clock, sleep=sleep)
    client._http = httpx.Client(base_url="http://service", transport=httpx.MockTransport(service))
    return client, slept


def test_a_refused_submit_is_repeated_when_its_time_has_come() -> None:
    service = Service((429, "rate_limited", 7), (429, "queue_saturated", 20))
    client, slept = client_of(service)
    assert client.submit("https://example.com/").job_id == "j-1"
    assert slept == [7, 20]


@pytest.mark.parametrize(
    "refusal",
    [(429, "quota_exceeded", 31), (429, "rate_limited", None), (503, "database_unavailable", 1)],
    ids=["longer than the patience", "no time", "perhaps done"],
)
def test_a_submit_is_not_repeated(refusal: tuple[int, str, int | None]) -> None:
    service = Service(refusal)
    client, slept = client_of(service)
    with pytest.raises(ApiError, match=refusal[1]):
        client.submit("https://example.com/")
    assert (service.requests, slept) == (1, [])


def test_the_patience_is_for_all_repetitions_together() -> None:
    service = Service(*[(429, "rate_limited", 10)] * 9)
    client, slept = client_of(service)
    with pytest.raises(ApiError, match="rate_limited"):
        client.submit("https://example.com/")
    assert slept == [10, 10, 10]


def test_waiting_waits_as_long_as_an_outage_asks_for() -> None:
    service = Service((503, "database_unavailable", 5))
    client, slept = client_of(service)
    with pytest.raises(Exception, match="validation error"):  # the service has no such job
        client.wait(["j-1"], timeout_s=60)
    assert slept == [5]

"""Queueing a URL without the Orchestrator, and how the parts are put together."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from indexmill.contracts.errors import CallerError, TransientError
from indexmill.contracts.http_scraper import ScrapeRequest
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.messages import ScrapeTask
from indexmill.platform.security.urls import parse_allowed_hosts
from indexmill.scraper.enqueue import Enqueue
from indexmill.scraper.settings import ScraperApiSettings, ScraperWorkerSettings
from indexmill.scraper.wiring import build_batch, build_use_cases
from tests.support.function_env import environment
from tests.support.scraper import SITE, delivery
from tests.twins.blobs import InMemoryBlobs
from tests.twins.fetcher import InMemoryFetcher, InMemoryRobotsCache
from tests.twins.queues import InMemoryQueue
from tests.twins.state_table import InMemoryHosts

ENVIRONMENT = {
    **environment("ScraperApi"),
    "SCRAPE_QUEUE_URL": "http://sqs/scrape",
    "SCRAPE_DLQ_URL": "http://sqs/dlq",
    "CALLBACKS_QUEUE_URL": "http://sqs/callbacks",
    "BUCKET_NAME": "content",
    "STATE_TABLE": "state",
    "ALLOWED_PRIVATE_HOSTS": "127.0.0.1:8081",
}

ANYONE, OWN = CallerContext("anyone"), CallerContext("own", internal=True)


def test_a_url_is_queued_in_its_one_spelling() -> None:
    queue = InMemoryQueue()
    enqueue = Enqueue(queue, make_id=lambda: "id-1")
    answer = enqueue(ANYONE, ScrapeRequest(url="HTTPS://Example.com"), request_id="r")
    assert (answer.job_id, answer.status) == (None, "queued")
    task = ScrapeTask.model_validate_json(queue.bodies[0])
    assert (task.message_id, task.job_id, task.url, task.request_id) == ("id-1", None, f"{SITE}/", "r")
    assert queue.groups == ["anyone"]


def test_an_internal_caller_may_name_a_job() -> None:
    queue = InMemoryQueue()
    answer = Enqueue(queue)(OWN, ScrapeRequest(url=SITE, job_id="j"))
    assert answer.job_id == "j"
    assert ScrapeTask.model_validate_json(queue.bodies[0]).job_id == "j"


def test_anyone_else_may_not() -> None:
    queue = InMemoryQueue()
    with pytest.raises(CallerError) as caught:
        Enqueue(queue)(ANYONE, ScrapeRequest(url=SITE, job_id="j"))
    assert (caught.value.code, caught.value.http_status) == ("forbidden", 403)
    assert queue.bodies == []


def test_a_private_url_is_not_queued() -> None:
    queue = InMemoryQueue()
    with pytest.raises(CallerError):
        Enqueue(queue)(OWN, ScrapeRequest(url="http://localhost/"))
    assert queue.bodies == []


def test_a_url_that_was_not_taken_is_an_error() -> None:
    queue = InMemoryQueue()
    queue.refuse = {0}
    with pytest.raises(TransientError) as caught:
        Enqueue(queue)(ANYONE, ScrapeRequest(url=SITE))
    assert caught.value.code == "queue_unavailable"


@pytest.mark.parametrize(
    "body",
    [
        '{"url": ""}',
        '{"url": 1}',
        "{}",
        '{"url": null}',
        '{"url": "https://a.b", "extra": 1}',
        '{"url": "https://a.b", "job_id": 1}',
    ],
)
def test_requests_are_strict(body: str) -> None:
    with pytest.raises(ValidationError):
        ScrapeRequest.model_validate_json(body)


def test_the_worker_is_built_from_its_environment() -> None:
    queue, fetcher = InMemoryQueue(), InMemoryFetcher({f"{SITE}/a": "<p>Words.</p>"})
    settings = ScraperWorkerSettings.from_environment(ENVIRONMENT)
    batch = build_batch(
        settings,
        queue=queue,
        fetcher=fetcher,
        blobs=InMemoryBlobs(),
        robots_cache=InMemoryRobotsCache(),
        host_states=InMemoryHosts(),
    )
    batch([delivery("/a", deadline=1e9)])
    batch.close()
    assert len(queue.bodies) == 1


def test_the_api_is_built_from_its_environment() -> None:
    queue = InMemoryQueue()
    settings = ScraperApiSettings.from_environment(ENVIRONMENT)
    api = build_use_cases(
        settings,
        queue=queue,
        fetcher=InMemoryFetcher(),
        blobs=InMemoryBlobs(),
        robots_cache=InMemoryRobotsCache(),
    )
    assert api.parts.allowed_hosts == parse_allowed_hosts("127.0.0.1:8081")
    assert api.parts.inline_text_bytes == 4 * 1024 * 1024
    api.enqueue(ANYONE, ScrapeRequest(url="http://127.0.0.1:8081/x"))
    assert len(queue.bodies) == 1


def test_the_real_adapters_are_built_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    build_batch(ScraperWorkerSettings.from_environment(ENVIRONMENT)).close()
    build_use_cases(ScraperApiSettings.from_environment(ENVIRONMENT))

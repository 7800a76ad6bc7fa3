"""One job through the Orchestrator's use cases, with every fault in between."""

from __future__ import annotations

import pytest

from indexmill.contracts.job import Job
from indexmill.contracts.messages import EmbedTask, ScrapeTask, read
from indexmill.platform.consumer.deliveries import Done, Retry
from tests.support.jobs import CALLER, embedded, failed, scraped, stored_job
from tests.support.orchestrator import OrchestratorHarness
from tests.support.sweeper import SweeperHarness


def job_in(p: OrchestratorHarness, job_id: str) -> Job:
    job = stored_job(p.store, CALLER.caller_id, job_id)
    assert job is not None
    return job


def error_of(p: OrchestratorHarness, job_id: str) -> tuple[str | None, str, str | None]:
    job = job_in(p, job_id)
    assert job.error is not None
    return job.failed_stage, job.error.code, job.error.cause


def test_a_job_travels_from_submit_to_done() -> None:
    p = OrchestratorHarness()
    job_id = p.submit()
    assert p.status(job_id) == "scraping"
    assert read(ScrapeTask, p.scrape.bodies[0]).job_id == job_id
    assert p.deliver(scraped(job_id)) == [Done()]
    assert p.status(job_id) == "embedding"
    task = read(EmbedTask, p.embed.bodies[0])
    assert task.job_id == job_id
    assert task.title == "Title"
    assert [chunk.text for chunk in task.chunks or []] == ["# Title\n\nSome words."]
    assert p.deliver(embedded(job_id, chunk_count=2)) == [Done()]
    job = job_in(p, job_id)
    assert (job.status, job.chunk_count, job.title) == ("done", 2, "Title")


@pytest.mark.fault("F11")
def test_a_copy_of_a_result_counts_once() -> None:
    p = OrchestratorHarness()
    job_id = p.submit()
    result = scraped(job_id)
    assert p.deliver(result, result) == [Done(), Done()]
    assert len(p.embed.bodies) == 1


@pytest.mark.fault("F12")
def test_a_result_ahead_of_the_state_goes_back_and_counts_later() -> None:
    p = OrchestratorHarness()
    job_id = p.submit()
    ahead = embedded(job_id)
    assert isinstance(p.deliver(ahead)[0], Retry)
    p.deliver(scraped(job_id))
    assert p.deliver(ahead) == [Done()]
    assert p.status(job_id) == "done"


def test_a_failure_keeps_its_stage_code_and_time() -> None:
    p = OrchestratorHarness()
    job_id = p.submit()
    p.deliver(failed(job_id))
    assert error_of(p, job_id) == ("scraping", "http_403", None)
    job = job_in(p, job_id)
    assert job.error is not None
    assert job.error.at == p.clock.now()
    p.deliver(scraped(job_id))
    assert p.status(job_id) == "failed"


@pytest.mark.fault("F16")
def test_an_unknown_jobs_result_is_dropped_once_and_for_all() -> None:
    assert OrchestratorHarness().deliver(scraped("00000000-0000-4000-8000-000000000000")) == [Done()]


def test_an_empty_document_fails_in_chunking() -> None:
    p = OrchestratorHarness()
    job_id = p.submit()
    p.deliver(scraped(job_id, text="  "))
    assert error_of(p, job_id) == ("chunking", "empty_content", None)


@pytest.mark.fault("F3")
def test_an_unavailable_queue_loses_nothing() -> None:
    p = SweeperHarness()
    p.scrape.unavailable = True
    job_id = p.submit()
    assert p.scrape.bodies == []
    p.scrape.unavailable = False
    p.clock.tick(31)
    assert p.sweep()["leftovers"] == 1
    assert read(ScrapeTask, p.scrape.bodies[0]).job_id == job_id
    assert p.sweep()["leftovers"] == 0


@pytest.mark.fault("F25")
def test_a_position_that_the_queue_refuses_is_sent_later() -> None:
    p = SweeperHarness()
    first, second = p.submit(), p.submit()
    p.embed.refuse = {0}
    p.deliver(scraped(first), scraped(second))
    assert len(p.embed.bodies) == 1
    p.clock.tick(31)
    p.sweep()
    assert {read(EmbedTask, body).job_id for body in p.embed.bodies} == {first, second}


def test_a_chunk_queue_that_comes_back_gets_its_messages() -> None:
    p = SweeperHarness()
    job_id = p.submit()
    p.chunk.unavailable = True
    p.deliver(scraped(job_id))
    p.chunk.unavailable = False
    p.clock.tick(31)
    p.sweep()
    p.chunk_all()
    assert p.status(job_id) == "embedding"
    assert len(p.embed.bodies) == 1

"""One suite for every store: a job ends when it exceeds its budget, before the stage that would cost more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from indexmill.contracts.content import BlobRef
from indexmill.contracts.cost import Budget, Prices, Spent
from indexmill.contracts.identity import Quota
from indexmill.contracts.job import Job
from indexmill.contracts.messages import StageResult
from indexmill.orchestrator.results.apply import apply_results
from indexmill.orchestrator.results.decide import Decider
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.results import Change
from indexmill.platform.postgres.database import Database
from tests.support.job_stores import Jobs, canceled, postgres_jobs, retried
from tests.support.jobs import CALLER, chunked, embedded, new_job, scraped, stored_job, submitted
from tests.twins.clock import FrozenClock

A_DOLLAR_A_TOKEN = Prices(embedding_token=1_000_000)
WORDS = "# Title\n\nSome words."


@pytest.fixture
def jobs(database_url: str) -> Iterator[Jobs]:
    with postgres_jobs(database_url) as found:
        yield found


@pytest.fixture
def real(database_url: str) -> Iterator[JobStore]:
    database = Database(database_url)
    yield JobStore(database, JobLimits({"free": Quota(job_chunks=2, job_bytes=100)}))
    database.close()


def submit(jobs: Jobs, **budget: float) -> str:
    return jobs.submit(new_job(budget=Budget.model_validate(budget)))


def priced(store: JobStore, *results: StageResult) -> Sequence[Change]:
    """Apply results where a token costs a dollar."""
    decide = Decider(FrozenClock(), prices=A_DOLLAR_A_TOKEN)
    return store.transaction(lambda tx: apply_results(tx, results, decide))


def over(job: Job) -> tuple[str, str | None, str | None]:
    return job.status.value, job.failed_stage, job.error.code if job.error else None


def test_content_of_more_bytes_than_the_budget_is_not_chunked(jobs: Jobs) -> None:
    job_id = submit(jobs, max_bytes=len(WORDS) - 1)
    (change,) = jobs.changes(scraped(job_id, text=WORDS))
    assert change.outbox == ()
    job = jobs.job(job_id)
    assert over(job) == ("failed", "scraping", "budget_exceeded")
    assert job.error is not None
    assert f"{len(WORDS)} bytes" in job.error.message
    assert job.user_message == "This document needs more than the job may use."
    assert (job.retryable, job.budget) == (False, Budget(max_bytes=len(WORDS) - 1))
    assert jobs.history(job_id)[-1] == (1, "scraping", "failed")


def test_a_job_within_its_budget_continues(jobs: Jobs) -> None:
    job_id = submit(jobs, max_bytes=len(WORDS), max_chunks=3, max_cost_usd=1)
    assert len(jobs.changes(scraped(job_id, text=WORDS))[0].outbox) == 1
    assert len(jobs.changes(chunked(job_id, chunk_count=3))[0].outbox) == 1
    jobs.apply(embedded(job_id, chunk_count=3))
    assert jobs.job(job_id).status == "done"


def test_the_fetched_bytes_count_and_not_those_of_the_text(jobs: Jobs) -> None:
    job_id = submit(jobs, max_bytes=999)
    result = scraped(job_id)
    result.document.raw_ref = BlobRef(key="raw/x", size=1000, sha256="0" * 64)  # type: ignore[union-attr]
    jobs.apply(result)
    assert over(jobs.job(job_id)) == ("failed", "scraping", "budget_exceeded")


def test_more_chunks_than_the_budget_are_not_embedded(jobs: Jobs) -> None:
    job_id = submit(jobs, max_chunks=2)
    jobs.changes(scraped(job_id))
    assert jobs.changes(chunked(job_id, chunk_count=3))[0].outbox == ()
    assert over(jobs.job(job_id)) == ("failed", "chunking", "budget_exceeded")


def test_a_retry_within_the_same_budget_fails_again(jobs: Jobs) -> None:
    job_id = submit(jobs, max_chunks=2)
    jobs.apply(scraped(job_id), chunked(job_id, chunk_count=3))
    jobs.retry(job_id)
    jobs.apply(chunked(job_id, 2, chunk_count=3))
    assert over(jobs.job(job_id)) == ("failed", "chunking", "budget_exceeded")


def test_what_embedding_would_cost_is_compared_before_it_begins(jobs: Jobs) -> None:
    job_id = submit(jobs, max_cost_usd=1.5)
    priced(jobs.store, scraped(job_id))
    # Two tokens in its one chunk.
    (change,) = priced(jobs.store, chunked(job_id))
    assert change.outbox == ()
    job = jobs.job(job_id)
    assert over(job) == ("failed", "chunking", "budget_exceeded")
    assert job.error is not None
    assert "would cost 2.00000" in job.error.message


def test_a_budget_in_money_suffices_when_the_next_stage_fits_into_it(jobs: Jobs) -> None:
    job_id = submit(jobs, max_cost_usd=2.5)
    priced(jobs.store, scraped(job_id))
    (change,) = priced(jobs.store, chunked(job_id))
    assert len(change.outbox) == 1


def test_what_earlier_stages_and_attempts_cost_counts(real: JobStore) -> None:
    ((accepted,), _) = submitted(real, new_job(budget=Budget(max_cost_usd=5.0)))
    job_id = accepted.job_id
    used = Spent(tokens_embedded=2)
    priced(real, replace_spent(scraped(job_id), used))
    canceled(real, job_id)
    assert retried(real, job_id).job.status == "chunking"
    # 2 before, 2 in this stage, and 2 that embedding would cost.
    priced(real, replace_spent(chunked(job_id, 2), used))
    job = stored_job(real, CALLER.caller_id, job_id)
    assert job is not None
    assert over(job) == ("failed", "chunking", "budget_exceeded")


def replace_spent(result: StageResult, spent: Spent) -> StageResult:
    return result.model_copy(update={"spent": spent})


def test_two_results_in_one_batch_are_added_up(jobs: Jobs) -> None:
    job_id = submit(jobs, max_cost_usd=5.0)
    used = Spent(tokens_embedded=2)
    priced(jobs.store, replace_spent(scraped(job_id), used), replace_spent(chunked(job_id), used))
    assert over(jobs.job(job_id)) == ("failed", "chunking", "budget_exceeded")


def test_a_tier_bounds_each_job_whatever_it_asks_for(real: JobStore) -> None:
    asked = Budget(max_chunks=50, max_bytes=10, max_cost_usd=1.0)
    for number, (budget, expected) in enumerate(
        [
            (None, Budget(max_chunks=2, max_bytes=100)),
            (asked, Budget(max_chunks=2, max_bytes=10, max_cost_usd=1.0)),
        ]
    ):
        job = replace(new_job(f"https://example.com/{number}"), budget=budget)
        ((accepted,), _) = submitted(real, job)
        found = stored_job(real, CALLER.caller_id, accepted.job_id)
        assert found is not None
        assert found.budget == expected


def test_a_job_of_the_release_before_has_no_budget(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    jobs.apply(scraped(job_id), chunked(job_id, chunk_count=100_000))
    job = jobs.job(job_id)
    assert (job.status, job.budget) == ("embedding", None)
    assert "budget" not in job.model_dump()

"""Results of an earlier attempt change nothing of the current one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexmill.orchestrator.store.results import Verdict
from tests.support.job_stores import Jobs, postgres_jobs, twin_jobs
from tests.support.jobs import chunked, embedded, failed, new_job, scraped

STAGES = ("scraping", "chunking", "embedding")


@pytest.fixture(params=["twin", "postgres"])
def jobs(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    if request.param == "twin":
        yield twin_jobs()
        return
    with postgres_jobs(request.getfixturevalue("database_url")) as found:
        yield found


def second_attempt(jobs: Jobs) -> str:
    job_id = jobs.submit(new_job())
    jobs.apply(failed(job_id))
    jobs.retry(job_id)
    return job_id


@pytest.mark.fault("F13")
@pytest.mark.parametrize("at", range(4), ids=[*STAGES, "done"])
def test_a_late_failure_of_the_first_attempt_does_not_touch_the_second(jobs: Jobs, at: int) -> None:
    job_id = second_attempt(jobs)
    for report in (scraped(job_id, 2), chunked(job_id, 2), embedded(job_id, 2))[:at]:
        assert jobs.apply(report) == [Verdict.ADVANCE]
    job, history = jobs.job(job_id), jobs.history(job_id)
    late = [failed(job_id, stage, attempt=1) for stage in STAGES]
    assert jobs.apply(*late) == [Verdict.LATE] * 3
    assert (jobs.job(job_id), jobs.history(job_id)) == (job, history)


@pytest.mark.fault("F13")
def test_a_late_success_of_the_first_attempt_moves_nothing_either(jobs: Jobs) -> None:
    job_id = second_attempt(jobs)
    job, history = jobs.job(job_id), jobs.history(job_id)
    late = [scraped(job_id, 1), chunked(job_id, 1), embedded(job_id, 1)]
    assert jobs.apply(*late) == [Verdict.LATE] * 3
    assert (jobs.job(job_id), jobs.history(job_id)) == (job, history)


@pytest.mark.fault("F12")
def test_a_result_of_a_later_attempt_is_kept_for_later(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    ahead = scraped(job_id, 2)
    assert jobs.apply(ahead) == [Verdict.EARLY]
    jobs.apply(failed(job_id))
    assert jobs.apply(ahead) == [Verdict.EARLY]
    jobs.retry(job_id)
    assert jobs.apply(ahead) == [Verdict.ADVANCE]

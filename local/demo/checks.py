"""Comparison of the demonstration's results with the site's catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from local.site.catalogue import DONE, PAGES, REDIRECTS

if TYPE_CHECKING:
    from indexmill.contracts.http_search import SearchResponse
    from indexmill.contracts.job import Job


def outcome(job: Job) -> str:
    """Return "done", or the error code that the job failed with."""
    return job.status if job.error is None else job.error.cause or job.error.code


def differences(site: str, jobs: Iterable[Job]) -> list[str]:
    """Return the differences from the catalogue, a sentence each; empty when there are none.

    A page that redirects to another one is a duplicate when that one was published before it was read, and is
    published itself when not.
    """
    found = {job.url: job for job in jobs}
    problems = []
    for page in PAGES:
        job = found.get(site + page.path)
        if job is None:
            problems.append(f"{page.path} has no job")
        elif outcome(job) != page.outcome:
            problems.append(f"{page.path} ended as {outcome(job)}, expected {page.outcome}")
        elif page.outcome == DONE and job.title != page.title:
            problems.append(f"{page.path} is titled {job.title!r}, expected {page.title!r}")
        elif job.duplicate_of is not None:
            if job.duplicate_of.url != site + REDIRECTS.get(page.path, ""):
                problems.append(f"{page.path} is a duplicate of {job.duplicate_of.url}")
        elif page.outcome == DONE and not job.chunk_count:
            problems.append(f"{page.path} has no chunks")
    return problems


def ranking_problem(found: SearchResponse, expected_url: str) -> str | None:
    """Return None when the best result is from `expected_url`, else a sentence."""
    if not found.results:
        return f"the search found nothing, expected {expected_url}"
    first = found.results[0].source_url
    return None if first == expected_url else f"the search ranks {first} first, expected {expected_url}"


def stages_passed(statuses: Sequence[str]) -> Mapping[str, int]:
    """Return how many documents have passed each stage; a failed one has passed all of them."""
    order = ("pending", "scraping", "chunking", "embedding", "done", "failed")
    ranks = [order.index(status) for status in statuses]
    return {
        "scraped": sum(rank > 1 for rank in ranks),
        "chunked": sum(rank > 2 for rank in ranks),
        "searchable": sum(rank > 3 for rank in ranks),
    }

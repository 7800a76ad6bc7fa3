"""A dry run is refused where its submit is: both run one transaction, which the dry run undoes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from indexmill.contracts.cost import Prices
from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_scraper import ScrapeResult
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import SubmitRequest
from indexmill.orchestrator.submission.dry_run import TryOut
from indexmill.orchestrator.submission.submit import SubmitJobs
from tests.support.job_stores import Jobs, Sent, postgres_jobs
from tests.support.jobs import CALLER
from tests.twins.uploads import InMemoryUploads

URL = "https://example.com/a"
OTHER = CallerContext("fedcba9876543210", tier="enterprise")
INTERNAL = CallerContext("00000000000000aa", tier="enterprise", internal=True)
Bad = tuple[CallerContext, str | None, dict[str, Any]]


class Page:
    """A scraper for which each page is fine."""

    def scrape(self, ctx: CallerContext, url: str, request_id: str, accept: object = None) -> ScrapeResult:
        return ScrapeResult(
            url=url,
            final_url=url,
            title=None,
            markdown="words",
            content_type="text/html",
            language=None,
            content_sha256="0" * 64,
            size=5,
            elapsed_ms=1,
        )


@pytest.fixture
def jobs(database_url: str) -> Iterator[Jobs]:
    with postgres_jobs(database_url) as made:
        yield made


BAD: dict[str, Bad] = {
    "a corpus name": (CALLER, None, {"url": URL, "corpus_name": "NOT VALID"}),
    "another corpus name": (CALLER, None, {"url": URL, "corpus_name": "a/b"}),
    "a scheme": (CALLER, None, {"url": "ftp://example.com/"}),
    "no URL": (CALLER, None, {"url": "example"}),
    "credentials": (CALLER, None, {"url": "https://a:b@example.com/"}),
    "a private address": (CALLER, None, {"url": "http://127.0.0.1/"}),
    "a port": (CALLER, None, {"url": "https://example.com:8443/"}),
    "one of several URLs": (CALLER, None, {"urls": [URL, "https://example.com/b", "mailto:a@b"]}),
    "an unknown dependency": (CALLER, None, {"url": URL, "depends_on": ["nope"]}),
    "another caller's dependency": (CALLER, None, {"url": URL, "depends_on": ["THEIRS"]}),
    "one of two dependencies": (CALLER, None, {"url": URL, "depends_on": ["MINE", "nope"]}),
    "another caller's name": (CALLER, None, {"url": URL, "on_behalf_of": OTHER.caller_id}),
    "an internal caller's dependency": (
        INTERNAL,
        None,
        {"url": URL, "on_behalf_of": OTHER.caller_id, "depends_on": ["MINE"]},
    ),
    "an empty key": (CALLER, "", {"url": URL}),
    "a key with a space": (CALLER, "a b", {"url": URL}),
    "a key of another request": (CALLER, "used", {"url": URL, "priority": 51}),
    "a crawl of too many pages": (OTHER, None, {"url": URL, "kind": "crawl", "crawl": {"max_pages": 1_000}}),
    "a sitemap of too many pages": (
        OTHER,
        None,
        {"url": URL, "kind": "sitemap", "crawl": {"max_pages": 999}},
    ),
}


def use_cases(jobs: Jobs) -> tuple[SubmitJobs, TryOut, Sent]:
    sent = Sent()
    submit = SubmitJobs(jobs.store, sent, jobs.blobs, InMemoryUploads(jobs.blobs))
    return submit, TryOut(submit, Page(), Prices()), sent


def test_a_dry_run_is_refused_as_its_submit_is(jobs: Jobs) -> None:
    submit, try_out, _ = use_cases(jobs)
    named = {
        "MINE": jobs.send(url=f"{URL}/mine").job_id,
        "THEIRS": jobs.send(url=f"{URL}/theirs", ctx=OTHER).job_id,
    }
    jobs.send("used", url=f"{URL}/used")
    for at in range(10):
        jobs.send(url=f"{URL}/{at}", ctx=OTHER, kind="crawl", crawl={"max_pages": 1_000})
    refusals = {}
    for name, (ctx, key, fields) in BAD.items():
        wanted = [named.get(each, each) for each in fields.get("depends_on", ())]
        body = {**fields, **({"depends_on": wanted} if wanted else {})}
        with pytest.raises(CallerError) as real:
            submit(ctx, SubmitRequest.model_validate(body), "r", key)
        with pytest.raises(CallerError) as dry:
            try_out(ctx, SubmitRequest.model_validate({**body, "dry_run": True}), "r", key)
        found = [(each.code, each.message, each.field, each.hint) for each in (dry.value, real.value)]
        assert found[0] == found[1], name
        refusals[name] = real.value.code
    assert set(refusals.values()) == {
        "corpus_name_invalid",
        "url_scheme_not_allowed",
        "url_invalid",
        "url_credentials_not_allowed",
        "url_host_not_allowed",
        "validation_error",
        "forbidden",
        "idempotency_conflict",
        "quota_exceeded",
    }


def test_a_dry_run_keeps_and_sends_nothing(jobs: Jobs) -> None:
    submit, try_out, sent = use_cases(jobs)
    request = SubmitRequest(urls=[URL, f"{URL}/b"], corpus_name="docs", dry_run=True)
    for _ in range(2):
        found = try_out(CALLER, request, "r", "key")
        assert (found.jobs, found.pending, len(found.pages)) == (2, 0, 2)
    assert jobs.find() == []
    assert sent.rows == []
    accepted = submit(CALLER, request.model_copy(update={"dry_run": None}), "r", "key")
    assert (accepted.deduplicated, len(sent.rows)) == (False, 2)
    assert try_out(CALLER, request, "r", "key").pending == 0
    assert len(jobs.find()) == 2


def test_a_dry_run_for_another_caller_has_its_numbers(jobs: Jobs) -> None:
    _, try_out, _ = use_cases(jobs)
    waits = jobs.send(url=f"{URL}/first", ctx=OTHER).job_id
    jobs.send(url=f"{URL}/second", ctx=OTHER, depends_on=[waits])
    request = SubmitRequest(url=URL, dry_run=True, on_behalf_of=OTHER.caller_id)
    assert try_out(INTERNAL, request, "r").pending == 1

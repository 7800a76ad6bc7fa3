"""Parts of the commands, without a stack."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from indexmill.client import Client
from indexmill.contracts.http_search import SearchResponse
from indexmill.contracts.job import Job, JobError, JobStatus, Progress, SubmitResponse
from local.cli.app import app
from local.cli.crawls import pairs
from local.cli.results import print_results
from local.cli.search import search_filter
from local.cli.submit import submit_all
from local.cli.terminal import EXIT_NO_STACK, EXIT_USAGE, Failure, console, print_json, running_stack
from local.cli.up import _folder, _overrides, _renderer
from local.demo.checks import differences, outcome, ranking_problem, stages_passed
from local.site.catalogue import DONE, PAGES

SITE = "http://site"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(path: str, status: str = "done", *, code: str = "", cause: str | None = None, **more: Any) -> Job:
    error = JobError(stage="scraping", code=code, message="m", at=NOW, cause=cause) if code else None
    fields = {"title": "T", "chunk_count": 1, **more}
    return Job(
        job_id=path,
        status=JobStatus(status),
        url=SITE + path,
        corpus_name="default",
        error=error,
        created_at=NOW,
        updated_at=NOW,
        user_message="…",
        progress=Progress(stage=3, of=3),
        attempt=1,
        **fields,
    )


def as_listed() -> dict[str, Job]:
    """Return the jobs of the built-in site as its catalogue lists them."""
    return {
        page.path: job(page.path, title=page.title)
        if page.outcome == DONE
        else job(page.path, "failed", code=page.outcome, chunk_count=None)
        for page in PAGES
    }


def hit(url: str, text: str = "words", score: float = 1.0) -> dict[str, Any]:
    ids = {
        "chunk_id": "c",
        "corpus_name": "default",
        "document_id": "d",
        "title": None,
        "ordinal": 0,
        "context": "",
        "start": 0,
        "end": 5,
    }
    return {**ids, "text": text, "score": score, "source_url": url}


def found(*hits: dict[str, Any]) -> SearchResponse:
    return SearchResponse.model_validate(
        {"results": hits, "query_ms": 1, "timings": {"embed_ms": 1, "search_ms": 0}}
    )


def test_the_precise_cause_is_the_outcome() -> None:
    assert outcome(job("/a")) == "done"
    assert outcome(job("/a", "failed", code="http_404")) == "http_404"
    assert outcome(job("/a", "failed", code="max_retries_exceeded", cause="dns_error")) == "dns_error"


def test_a_site_indexed_as_the_catalogue_lists_it_has_no_differences() -> None:
    assert differences(SITE, as_listed().values()) == []


@pytest.mark.parametrize(
    ("path", "instead", "expected"),
    [
        ("/lost.html", None, "/lost.html has no job"),
        ("/lost.html", job("/lost.html"), "/lost.html ended as done, expected http_404"),
        ("/handbook.html", job("/handbook.html", title="X"), "is titled 'X', expected"),
        (
            "/handbook.html",
            job("/handbook.html", title="The Keeper's Handbook", chunk_count=0),
            "has no chunks",
        ),
        ("/index.html", job("/index.html", "embedding"), "ended as embedding, expected done"),
    ],
)
def test_differences_are_listed(path: str, instead: Job | None, expected: str) -> None:
    jobs = as_listed()
    del jobs[path]
    (problem,) = differences(SITE, [*jobs.values(), *([instead] if instead else [])])
    assert expected in problem


def test_a_page_that_redirects_may_be_a_duplicate_of_its_target_only() -> None:
    """It is one when its target is published first."""
    jobs = as_listed()
    handbook = {"document_id": "d", "url": f"{SITE}/handbook.html"}

    def with_duplicate(path: str, original: dict[str, str]) -> list[Job]:
        more = {"title": jobs[path].title, "chunk_count": 0, "duplicate_of": original}
        return [*jobs.values(), job(path, **more)]

    assert differences(SITE, with_duplicate("/old-handbook", handbook)) == []
    assert differences(SITE, with_duplicate("/index.html", handbook)) == [
        f"/index.html is a duplicate of {SITE}/handbook.html"
    ]
    other = {"document_id": "d", "url": f"{SITE}/index.html"}
    assert differences(SITE, with_duplicate("/old-handbook", other)) == [
        f"/old-handbook is a duplicate of {SITE}/index.html"
    ]


def test_the_first_result_decides_about_a_ranking() -> None:
    assert ranking_problem(found(hit("a"), hit("b")), "a") is None
    assert ranking_problem(found(hit("b"), hit("a")), "a") == "the search ranks b first, expected a"
    assert ranking_problem(found(), "a") == "the search found nothing, expected a"


def test_stages_are_counted_by_how_far_documents_are() -> None:
    statuses = ["pending", "scraping", "chunking", "embedding", "done", "failed"]
    assert stages_passed(statuses) == {"scraped": 4, "chunked": 3, "searchable": 2}
    assert set(stages_passed([]).values()) == {0}


class RecordingClient(Client):
    """Client that only counts the submitted URLs."""

    def __init__(self) -> None:
        super().__init__("http://nowhere", "key")
        self.batches: list[list[str]] = []

    def submit(self, url: Any, corpus_name: str | None = None) -> SubmitResponse:
        self.batches.append(list(url))
        return SubmitResponse(job_id=url[0], url_count=len(url), job_ids=list(url))


def test_any_number_of_urls_goes_out_in_batches_of_a_hundred() -> None:
    urls = [f"u{at}" for at in range(250)]
    with RecordingClient() as client:
        assert submit_all(client, urls, None) == urls
    assert [len(batch) for batch in client.batches] == [100, 100, 50]


def test_results_are_shown_with_rank_and_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    print_results(
        console(), found(hit("http://a/", "one [b]two[/b]\n\nthree"), hit("http://b/", "word " * 60, 0.5))
    )
    shown = capsys.readouterr().out
    assert "1. 1.000  http://a/\n     one [b]two[/b] three\n" in shown
    assert "2. 0.500  http://b/" in shown
    assert shown.rstrip().endswith("word…")
    assert max(map(len, shown.splitlines())) <= 5 + 160
    print_results(console(), found())
    assert "nothing found" in capsys.readouterr().out


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"at": NOW, "text": "a\nb"})
    assert capsys.readouterr().out == '{"at": "2026-01-01 00:00:00+00:00", "text": "a\\nb"}\n'


def test_a_folder_without_a_stack_is_a_failure_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=f"start one with: indexmill up --state {tmp_path}") as failure:
        running_stack(tmp_path)
    assert failure.value.exit_code == EXIT_NO_STACK


def test_options_of_up_are_read(tmp_path: Path) -> None:
    assert _overrides(["A=1", "B=x=y"]) == {"A": "1", "B": "x=y"}
    assert (_folder(tmp_path), _folder(None)) == (tmp_path.resolve(), None)


def test_a_renderer_is_the_chromium_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDEXMILL_CHROMIUM", "/opt/chromium")
    assert _renderer() == "chromium:/opt/chromium"
    monkeypatch.delenv("INDEXMILL_CHROMIUM")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Failure, match="--renderer needs a Chromium") as failure:
        _renderer()
    assert failure.value.exit_code == EXIT_USAGE


def test_wrong_options_of_up_are_wrong_usage() -> None:
    for wrong, expected in (
        (lambda: _overrides(["A"]), "--parameter"),
        (lambda: _folder(Path("/no/such/folder")), "--site-root /no/such/folder is no folder"),
    ):
        with pytest.raises(Failure, match=expected) as failure:
            wrong()
        assert failure.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    "command",
    ["up", "down", "status", "submit", "search", "jobs", "logs", "demo", "chaos", "callers", "maintenance"],
)
def test_every_command_explains_itself_with_examples(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"])
    assert shown.exit_code == 0
    assert f"indexmill {command}" in shown.output
    assert "Examples:" in shown.output


def test_an_unknown_command_is_wrong_usage() -> None:
    assert CliRunner().invoke(app, ["strat"]).exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    ("conditions", "metadata", "expected"),
    [
        ([], None, None),
        ([], {"a.b": "x=y"}, {"metadata": {"a.b": "x=y"}}),
        (
            ["language=en", "published_at.since=2026-01-01", "published_at.before=2026-02-01"],
            None,
            {"language": "en", "published_at": {"since": "2026-01-01", "before": "2026-02-01"}},
        ),
        (["metadata_dates.a.b.since=2026"], None, {"metadata_dates": {"a.b": {"since": "2026"}}}),
        (["colour=red"], {}, {"metadata": {}, "colour": "red"}),
    ],
)
def test_conditions_of_the_command_line_are_a_filter(
    conditions: list[str], metadata: dict[str, str] | None, expected: dict[str, object] | None
) -> None:
    assert search_filter(conditions, metadata) == expected


def test_an_option_without_a_value_is_named() -> None:
    with pytest.raises(Failure, match="--metadata team: write it as NAME=VALUE"):
        pairs("--metadata", ["team"])

"""The `indexmill` command, run as a person or a script runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from indexmill.contracts.content import MAX_UPLOAD_BYTES
from local.site.catalogue import PAGES
from tests.support.processes import family, listening, mentioning, still_running
from tests.support.repository import ROOT
from tests.support.stack import RunningStack, eventually, index, indexmill, open_folder, start
from tests.unit.scraper.pdf_file import pdf

pytestmark = [pytest.mark.e2e, pytest.mark.direct]

CORPUS = "cli"
NO_STACK = 3
ADDRESSES = ("gateway", "control", "site", "membership", "embeddings", "database_url", "aws_endpoint")


@pytest.fixture
def open_path() -> Iterator[Path]:
    """Yield a folder that others may enter: the database server may run as another user."""
    with open_folder() as opened:
        yield opened


@pytest.fixture
def folder(open_path: Path) -> Iterator[Path]:
    """Yield a state folder whose stack, if one is left, is ended."""
    state = open_path / "state"
    try:
        yield state
    finally:
        indexmill("down", "--state", str(state))


def on(stack: RunningStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return indexmill(*arguments, "--state", stack.state)


def addresses(stack: RunningStack) -> list[str]:
    return [str(getattr(stack, name)) for name in ADDRESSES]


def test_two_stacks_run_beside_each_other(stack: RunningStack, rough_stack: RunningStack) -> None:
    assert not set(addresses(stack)) & set(addresses(rough_stack))
    limits = [each.parameters["IntegrationTimeoutSeconds"] for each in (stack, rough_stack)]
    assert limits == ["29", "6"]
    with stack.http() as own, stack.http(rough_stack.api_key) as foreign:
        assert own.get("/orchestrator/jobs").status_code == 200
        assert foreign.get("/orchestrator/jobs").status_code == 401


def test_a_folder_has_one_stack(stack: RunningStack) -> None:
    again = on(stack, "up", "--detach", "--json")
    assert (again.returncode, again.stdout) == (1, "")
    assert f"a stack is running on {stack.state} (process {stack.pid})" in again.stderr
    assert stack.status()["pid"] == stack.pid


def test_status_lists_what_runs(stack: RunningStack) -> None:
    shown = on(stack, "status")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"process {stack.pid}" in shown.stdout
    found = json.loads(on(stack, "status", "--json").stdout)
    assert found["gateway"] == stack.gateway
    assert found["services"].keys() == {"site", "membership", "embeddings", "postgres", "aws"}
    assert all(service["serving"] for service in found["services"].values())
    assert {"Authorizer", "ScraperWorker", "Migrator"} <= found["functions"].keys()
    assert found["memory_mb"]["total"] > 50


def test_a_page_is_submitted_and_found(stack: RunningStack) -> None:
    page = f"{stack.site}/collections/telescopes.html"
    submitted = on(stack, "submit", page, "--corpus", CORPUS, "--metadata", "shelf=optics")
    assert (submitted.returncode, submitted.stderr) == (0, "")
    assert f"done      {page}" in submitted.stdout
    asked = ("search", "borrow a telescope", "--corpus", CORPUS)
    found = json.loads(on(stack, *asked, "--top-k", "1", "--json").stdout)
    assert [hit["source_url"] for hit in found["results"]] == [page]
    shown = on(
        stack, *asked, "--mode", "keyword", "--one-per-document", "--explain", "--metadata", "shelf=optics"
    )
    assert re.match(r"\s*1\. 0\.\d{3}  " + re.escape(page), shown.stdout)
    assert re.search(r"keyword +score \d+\.\d{3}, rank 1, 1\.00 x 1\.000", shown.stdout)
    assert re.search(r"vector +not in its list", shown.stdout)
    assert re.search(rf"of {CORPUS}, generation \d+, .*, indexed 0:\d\d:\d\d ago", shown.stdout)
    other = on(stack, *asked, "--metadata", "shelf=optics", "--filter", "indexed_at.before=2026-01-01")
    assert "nothing found" in other.stdout


def test_documents_are_listed_and_read(stack: RunningStack, tmp_path: Path) -> None:
    corpus, file = f"documents-{uuid.uuid4().hex[:6]}", tmp_path / "ferry.pdf"
    file.write_bytes(pdf("The ferry leaves at dawn.", "It returns at dusk."))
    text = tmp_path / "owls.md"
    text.write_text("# Owls\n\nOwls hunt at night.\n")
    assert on(stack, "submit", str(file), str(text), "--corpus", corpus).returncode == 0
    shown = on(stack, "documents", "list", "--corpus", corpus)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "ferry.pdf" in shown.stdout
    listed = json.loads(on(stack, "documents", "list", "--corpus", corpus, "--json").stdout)
    assert [each["url"].rpartition("/")[2] for each in listed] == ["upload:ferry.pdf", "upload:owls.md"]
    only = on(stack, "documents", "list", "--corpus", corpus, "--content-type", "application/pdf", "--json")
    assert json.loads(only.stdout) == listed[:1]
    assert "no documents" in on(stack, "documents", "list", "--corpus", corpus, "--stale").stdout
    first = on(stack, "documents", "list", "--corpus", corpus, "--limit", "1")
    assert "there are more" in first.stderr
    ferry, owls = (each["document_id"] for each in listed)
    content = on(stack, "documents", "content", ferry, "--corpus", corpus).stdout
    assert content == "The ferry leaves at dawn.\n\nIt returns at dusk."
    chunks = json.loads(on(stack, "documents", "chunks", ferry, "--corpus", corpus, "--json").stdout)
    assert [content[each["start"] : each["end"]] for each in chunks] == [each["text"] for each in chunks]
    assert chunks[0]["page"] == 1
    assert "Owls hunt at night" in on(stack, "documents", "chunks", owls, "--corpus", corpus).stdout
    one = json.loads(on(stack, "documents", "show", owls, "--corpus", corpus).stdout)
    assert one == listed[1]
    unknown = on(stack, "documents", "show", "0" * 64, "--corpus", corpus)
    assert (unknown.returncode, "not_found" in unknown.stderr) == (1, True)


def test_a_page_that_fails_is_listed_and_fails_the_command(stack: RunningStack) -> None:
    shown = on(stack, "submit", f"{stack.site}/lost.html", "--corpus", CORPUS)
    assert shown.returncode == 1
    assert "http_404  There is no page at this URL." in shown.stdout
    (job,) = json.loads(on(stack, "submit", f"{stack.site}/lost.html", "--corpus", CORPUS, "--json").stdout)
    assert job["error"]["code"] == "http_404"
    refused = on(stack, "submit", "http://127.0.0.1:1/")
    assert (refused.returncode, "url_host_not_allowed" in refused.stderr) == (2, True)
    unknown = on(stack, "search", "words", "--corpus", "no-such-corpus")
    assert (unknown.returncode, "not_found" in unknown.stderr) == (1, True)


def test_a_submit_takes_priority_dependencies_and_force(stack: RunningStack) -> None:
    page = f"{stack.site}/handbook.html"
    before = json.loads(on(stack, "submit", page, "--no-wait", "--json").stdout)["job_ids"]
    options = ("--priority", "90", "--depends-on", before[0], "--force", "--json")
    (job,) = json.loads(on(stack, "submit", page, "--corpus", CORPUS, *options).stdout)
    assert (job["status"], job["priority"]) == ("done", 90)
    for unknown, reason in (
        ("no-such-job", "no job begins with 'no-such-job'"),
        (str(uuid.uuid4()), "no such job to depend on"),
    ):
        refused = on(stack, "submit", page, "--depends-on", unknown)
        assert (refused.returncode, reason in refused.stderr) == (2, True)


def test_files_are_submitted_beside_urls_and_found(stack: RunningStack, tmp_path: Path) -> None:
    page, corpus = f"{stack.site}/handbook.html", "cli-files"
    (tmp_path / "walnuts.md").write_text("# Walnuts\n\nWalnuts fall in October.\n", encoding="utf-8")
    (tmp_path / "chestnuts.pdf").write_bytes(pdf("Chestnuts are roasted in winter."))
    paths = [str(tmp_path / "walnuts.md"), page, str(tmp_path / "chestnuts.pdf")]
    jobs = json.loads(on(stack, "submit", *paths, "--corpus", corpus, "--json").stdout)
    urls = ["upload:walnuts.md", page, "upload:chestnuts.pdf"]
    assert [(job["url"], job["status"]) for job in jobs] == [(url, "done") for url in urls]
    found = json.loads(on(stack, "search", "roasted in winter", "--corpus", corpus, "--json").stdout)
    assert found["results"][0]["source_url"] == "upload:chestnuts.pdf"
    large = tmp_path / "hazelnuts.pdf"
    large.write_bytes(pdf("Hazelnuts are ground.", beside=bytes(2_000_000)))
    (job,) = json.loads(on(stack, "submit", str(large), "--corpus", corpus, "--json").stdout)
    assert (job["url"], job["status"]) == ("upload:hazelnuts.pdf", "done")
    with large.open("ab") as file:
        file.truncate(MAX_UPLOAD_BYTES + 1)
    refused = on(stack, "submit", str(large), "--corpus", corpus)
    assert (refused.returncode, "content_too_large" in refused.stderr) == (2, True)
    (tmp_path / "walnuts.md").write_text("Walnuts fall in September.", encoding="utf-8")
    options = ("--name", "walnuts.md", "--content-type", "text/plain", "--corpus", corpus, "--json")
    (again,) = json.loads(on(stack, "submit", paths[0], *options).stdout)
    assert (again["status"], again["document_id"]) == ("done", jobs[0]["document_id"])


def test_a_file_that_cannot_be_submitted_is_a_clear_error(stack: RunningStack, tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "n.md", tmp_path / "b" / "n.md"
    for each in (one, other):
        each.parent.mkdir()
        each.write_text("words", encoding="utf-8")
    for arguments, said in (
        ([str(tmp_path / "missing.md")], "no such file"),
        (["example.com"], "a URL starts with http"),
        ([str(one), str(other)], "one name"),
        ([str(one), str(other), "--name", "n"], "exactly one file"),
    ):
        shown = on(stack, "submit", *arguments)
        assert (shown.returncode, said in shown.stderr) == (2, True), shown.stderr


def test_a_submit_takes_a_budget(stack: RunningStack) -> None:
    page = f"{stack.site}/handbook.html?budget"
    shown = on(stack, "submit", page, "--corpus", CORPUS, "--max-chunks", "1", "--json")
    (job,) = json.loads(shown.stdout)
    assert (shown.returncode, job["error"]["code"]) == (1, "budget_exceeded")
    refused = on(stack, "submit", page, "--max-cost", "0")
    assert (refused.returncode, "max_cost_usd" in refused.stderr) == (2, True)


def test_limits_are_shown(stack: RunningStack) -> None:
    found = json.loads(on(stack, "limits", "--json").stdout)
    assert {each["name"] for each in found["jobs"]} == {"active", "hour", "minute", "chunks_today"}
    shown = on(stack, "limits")
    assert shown.returncode == 0
    assert f"tier {found['tier']}" in shown.stdout
    assert "orchestrator" in shown.stdout


def test_submitting_without_waiting_prints_the_jobs(stack: RunningStack, http: httpx.Client) -> None:
    pages = [stack.site + path for path in ("/index.html", "/handbook.html")]
    reported: dict[str, list[str]] = json.loads(on(stack, "submit", *pages, "--no-wait", "--json").stdout)
    jobs = [http.get(f"/orchestrator/jobs/{job_id}").json() for job_id in reported["job_ids"]]
    assert [job["url"] for job in jobs] == pages


def test_logs_are_shown_by_function(stack: RunningStack) -> None:
    with stack.http() as caller:
        caller.get("/orchestrator/jobs")
    shown = on(stack, "logs", "OrchestratorApi")
    assert shown.returncode == 0
    lines = [line for line in shown.stdout.splitlines() if not line.startswith(" ")]
    assert lines
    assert all(line.split()[1] == "OrchestratorApi" for line in lines)
    unknown = on(stack, "logs", "NoSuchFunction", "--follow")
    assert (unknown.returncode, "OrchestratorApi" in unknown.stderr) == (2, True)


@pytest.mark.parametrize(
    ("parameter", "reported"),
    [
        ("ScrapeTimout=5", "ScrapeTimeout"),
        ("ScrapeTimeout", "KEY=VALUE"),
        # The other refusals take the same way: tests/unit/local has each of them.
        pytest.param("ScrapeTimeout=soon", "no number", marks=pytest.mark.long),
        pytest.param("LogLevel=LOUD", "DEBUG, INFO", marks=pytest.mark.long),
        pytest.param("ScrapeTimeout=100", "raise ScrapeVisibility to 600", marks=pytest.mark.long),
    ],
)
def test_a_wrong_parameter_is_wrong_usage(folder: Path, parameter: str, reported: str) -> None:
    refused = indexmill("up", "--detach", "--json", "--state", str(folder), "--parameter", parameter)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert reported in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "command", [["status"], ["search", "words"], ["submit", "https://a.example/"], ["down"]]
)
def test_without_a_stack_a_command_fails_with_a_note(tmp_path: Path, command: list[str]) -> None:
    refused = indexmill(*command, "--state", str(tmp_path / "none"))
    assert (refused.returncode, refused.stdout) == (NO_STACK, "")
    assert f"no stack is running on {tmp_path / 'none'}" in refused.stderr


def test_a_killed_stack_continues_and_down_leaves_no_process(folder: Path) -> None:
    first = start(folder)
    with first.client() as client:
        page = f"{first.site}/collections/bookboat.html"
        before = index(client, page, CORPUS)
    lost = family(first.pid)
    assert len(lost) > 6
    os.kill(first.pid, signal.SIGKILL)
    assert indexmill("status", "--state", str(folder)).returncode == NO_STACK
    second = start(folder)
    assert (second.site, second.api_key) == (first.site, first.api_key)
    assert second.gateway == first.gateway
    with second.client() as client:
        assert client.get(before.job_id) == before
        assert index(client, page, CORPUS).document_id == before.document_id
        assert {hit.source_url for hit in client.search("boat", CORPUS, 100).results} == {page}
    everything = lost | family(second.pid)
    assert indexmill("down", "--state", str(folder)).returncode == 0
    assert (still_running(everything), listening(addresses(second))) == ([], [])
    assert indexmill("down", "--state", str(folder)).returncode == NO_STACK


def demo(open_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "local.cli.app", "demo"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(open_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_in(folder: Path) -> list[str]:
    """Return what is in a temporary folder, but for the cache of what is made once."""
    return [each.name for each in folder.iterdir() if each.name != f"indexmill-{os.geteuid()}"]


def test_the_demo_succeeds_and_leaves_nothing(open_path: Path) -> None:
    with demo(open_path) as process:
        shown, complaints = process.communicate(timeout=90)
    assert (process.returncode, complaints) == (0, ""), shown
    *_, expected, receipt = shown.rstrip().splitlines()
    assert expected == "everything is as expected"
    figures = re.fullmatch(
        rf"receipt: {len(PAGES)} documents, (\d+) chunks \((\d+) embedded\), [\d.]+ GB-s, "
        r"\d+ SQS / \d+ S3 requests, about \$[\d.,]+ per 1M such jobs",
        receipt,
    )
    assert figures, receipt
    # Pages share texts, and one text is embedded once in a corpus.
    assert 0 < int(figures[2]) < int(figures[1])
    assert f"17 of {len(PAGES)} documents indexed" in shown
    eventually(lambda: (left_in(open_path), mentioning(str(open_path))) == ([], []), "nothing is left", 5)


def test_a_demo_that_is_killed_takes_its_cloud_along(open_path: Path) -> None:
    with demo(open_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        assert "the cloud is ready" in first, process.stderr.read()
        assert mentioning(str(open_path))
        process.kill()
    eventually(lambda: not mentioning(str(open_path)), "its processes end", 20)
    eventually(lambda: not left_in(open_path), "its folder is gone", 5)

"""The commands by which a person finds out what happens, on a running stack."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from indexmill.client import Client
from indexmill.contracts.job import Job
from local.cli.function_errors import function_errors_shown
from local.cli.samples import SAMPLES
from tests.support.repository import ROOT
from tests.support.stack import RunningStack, eventually, index, indexmill

pytestmark = [pytest.mark.e2e, pytest.mark.direct]

CORPUS = "people"
SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)(\{(?:\w+="(?:[^"\\\n]|\\.)*",?)+\})? (\S+)')


def on(stack: RunningStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return indexmill(*arguments, "--state", stack.state)


def piped(stack: RunningStack, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "local.cli.app", *arguments, "--state", stack.state],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def done(stack: RunningStack, client: Client) -> Job:
    """Return a job that went all the way, with all that its functions logged."""
    return logged(
        stack, index(client, f"{stack.site}/collections/telescopes.html", CORPUS), "EmbeddingWorker"
    )


@pytest.fixture(scope="module")
def failed(stack: RunningStack, client: Client) -> Job:
    """Return a job whose page is not there, with all that its functions logged."""
    return logged(stack, index(client, f"{stack.site}/lost.html", CORPUS), "ScraperWorker")


def logged(stack: RunningStack, job: Job, last: str) -> Job:
    """Return the job once its trace is whole: its functions end, and tell so, after it has ended."""

    def whole() -> bool:
        shown = on(stack, "trace", job.job_id).stdout
        reported = all(f"{function} ended after" in shown for function in (last, "OrchestratorResults"))
        return reported and "has been running for" not in shown

    eventually(whole, f"all of {job.job_id} is logged")
    return job


def samples(text: str) -> dict[str, float]:
    """Return the metrics of an exposition, each by its name and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = {line: SAMPLE.fullmatch(line) for line in lines}
    assert [line for line, match in found.items() if match is None] == []
    return {f"{match[1]}{match[2] or ''}": float(match[3]) for match in found.values() if match}


def test_a_trace_shows_a_jobs_way_in_order(stack: RunningStack, done: Job) -> None:
    shown = on(stack, "trace", done.job_id)
    assert (shown.returncode, shown.stderr) == (0, "")
    texts = [
        "accepted: pending",
        "pending → scraping",
        "ScraperWorker started",
        "scraping → chunking",
        "ChunkingWorker started",
        "chunking → embedding",
        "EmbeddingWorker started",
        "embedding → done",
    ]
    assert [text for text in texts if text not in shown.stdout] == []
    found = [shown.stdout.index(text) for text in texts]
    assert found == sorted(found)
    assert "\x1b" not in shown.stdout


def test_a_trace_for_programs_adds_up(stack: RunningStack, done: Job) -> None:
    found: dict[str, Any] = json.loads(on(stack, "trace", done.job_id[:13], "--json").stdout)
    assert found["job"]["id"] == done.job_id
    stages = {stage["name"]: stage for stage in found["stages"]}
    assert stages.keys() == {"pending", "scraping", "chunking", "embedding"}
    assert sum(stage["total_ms"] for stage in stages.values()) == pytest.approx(found["total_ms"], abs=1)
    for name in ("scraping", "chunking", "embedding"):
        parts = [stages[name][part] for part in ("wait_ms", "work_ms", "report_ms")]
        assert sum(parts) == pytest.approx(stages[name]["total_ms"], abs=1)
    offsets = [event["offset_ms"] for event in found["events"]]
    assert offsets == sorted(offsets)
    lasted = (done.updated_at - done.created_at).total_seconds() * 1e3
    assert found["total_ms"] == pytest.approx(lasted, abs=1)


def test_a_trace_shows_why_a_job_failed(stack: RunningStack, failed: Job) -> None:
    shown = on(stack, "trace", failed.job_id)
    assert shown.returncode == 0
    assert "scraping → failed (scraping failed): http_404" in shown.stdout
    assert "ChunkingWorker" not in shown.stdout


def test_an_unknown_job_has_no_trace(stack: RunningStack) -> None:
    refused = on(stack, "trace", "no-such-job")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "there is no job no-such-job" in refused.stderr


def test_logs_of_a_job_are_those_of_all_its_stages(stack: RunningStack, done: Job, failed: Job) -> None:
    lines = on(stack, "logs", "--job", done.job_id).stdout.splitlines()
    functions = {line.split()[1] for line in lines}
    stages = {"ScraperWorker", "OrchestratorResults", "ChunkingWorker", "EmbeddingWorker"}
    # The submit is an event of the audit, which the sweeper logs at its next run.
    assert stages <= functions <= {*stages, "OrchestratorSweeper", "Audit"}
    assert lines == sorted(lines, key=lambda line: line.split()[0])
    assert not any(failed.job_id in line for line in lines)
    some = on(stack, "logs", "ScraperWorker", "ChunkingWorker", "--job", done.job_id).stdout.splitlines()
    assert {line.split()[1] for line in some} == {"ScraperWorker", "ChunkingWorker"}


def test_logs_of_a_failed_job_say_why_and_leave_its_neighbours_out(
    stack: RunningStack, client: Client
) -> None:
    pages = [f"{stack.site}/{path}" for path in ("lost-neighbour.html", "index.html", "handbook.html")]
    accepted = client.submit(pages, CORPUS)
    lost, *others = client.wait(accepted.job_ids or [], 40)
    logged(stack, lost, "ScraperWorker")
    lines = on(stack, "logs", "--job", lost.job_id).stdout.splitlines()
    (failed,) = [line for line in lines if "stage.failed" in line]
    assert f"job_id={lost.job_id}" in failed
    assert "code=http_404" in failed
    assert not any(line.split()[1] == "ChunkingWorker" for line in lines)
    assert not any(other.job_id in line for other in others for line in lines)


def test_missing_logs_are_reported(stack: RunningStack, http: httpx.Client) -> None:
    none = on(stack, "logs", "--job", "no-such-job")
    assert (none.returncode, none.stdout) == (1, "")
    assert "indexmill trace no-such-job" in none.stderr
    nowhere = http.get("/nowhere").headers["x-amzn-requestid"]
    found = on(stack, "logs", "--request", nowhere)
    assert (found.returncode, "the gateway itself answered 404" in found.stderr) == (1, True)
    idle = on(stack, "logs", "OrchestratorDeadLetters")
    assert idle.returncode == 0
    assert idle.stdout or "OrchestratorDeadLetters has not run yet" in idle.stderr


def test_jobs_are_listed_newest_first_with_filters(stack: RunningStack, done: Job, failed: Job) -> None:
    def listed(*filters: str) -> list[str]:
        return [each["job_id"] for each in json.loads(on(stack, "jobs", *filters, "--json").stdout)]

    everything = listed("--corpus", CORPUS, "--limit", "1000")
    assert {done.job_id, failed.job_id} <= set(everything)
    assert listed("--corpus", CORPUS, "--limit", "1") == everything[:1]
    lost = listed("--corpus", CORPUS, "--status", "failed", "--failed-stage", "scraping")
    assert failed.job_id in lost
    assert done.job_id not in lost
    assert listed("--corpus", "nobody-s") == []
    shown = on(stack, "jobs", "--corpus", CORPUS, "--limit", "1")
    assert (shown.returncode, len(shown.stdout.splitlines())) == (0, 2)
    assert "there are more" in shown.stderr
    wrong = on(stack, "jobs", "--status", "lost")
    assert (wrong.returncode, wrong.stdout) == (2, "")


def test_an_event_without_records_is_no_success(stack: RunningStack) -> None:
    empty = piped(stack, "{}", "invoke", "ScraperWorker", "-", "--no-tail")
    assert (empty.returncode, json.loads(empty.stdout)) == (1, {"batchItemFailures": []})
    assert "no message was processed" in empty.stderr


def test_logs_of_a_request_are_found_by_the_ids_of_its_response(
    stack: RunningStack, http: httpx.Client
) -> None:
    answer = http.get("/orchestrator/jobs/no-such-job")

    def found() -> list[str] | None:
        shown = on(stack, "logs", "--request", answer.headers["x-request-id"]).stdout
        # What a request cost is logged after its answer.
        return shown.splitlines() if "REPORT" in shown else None

    lines = eventually(found, "the request is logged")
    # The authorizer is asked too, unless its last answer for the key is still remembered.
    assert {line.split()[1] for line in lines} - {"Authorizer"} == {"OrchestratorApi"}
    assert {line.split()[3] for line in lines} >= {"START", "END", "REPORT"}
    assert len({line.split()[2] for line in lines}) == 1


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_event_can_be_piped_into_its_function(stack: RunningStack, name: str) -> None:
    event = on(stack, "events", name)
    assert (event.returncode, event.stderr) == (0, "")
    invoked = piped(stack, event.stdout, "invoke", SAMPLES[name].function, "-")
    assert invoked.returncode == 0, invoked.stderr
    result = json.loads(invoked.stdout)
    assert not result.get("batchItemFailures")
    assert result.get("statusCode", 202) == 202
    assert "REPORT RequestId: " in invoked.stderr


def test_a_function_that_fails_fails_the_command(stack: RunningStack) -> None:
    failed = on(stack, "invoke", "Authorizer", "--no-tail")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["errorMessage"] == "Unauthorized"
    assert failed.stderr == "error: Authorizer failed (Unhandled)\n"
    reported = json.loads(on(stack, "invoke", "Authorizer", "--json").stdout)
    assert reported["function_error"] == "Unhandled"
    assert any(line.startswith("REPORT") for line in reported["log"])


@pytest.fixture
def hidden_once(stack: RunningStack) -> Iterator[None]:
    """Give ScraperWorker a queue's event that no handler survives, after the test has begun to wait."""
    broken = json.dumps({"Records": [{"eventSourceARN": "arn:aws:sqs:eu-west-1:1:other"}]})
    timer = threading.Timer(1.0, piped, (stack, broken, "invoke", "ScraperWorker", "-", "--no-tail"))
    timer.start()
    yield
    timer.join()


def test_a_command_that_waits_names_the_function_that_failed(stack: RunningStack, hidden_once: None) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), function_errors_shown(stack.control):
        eventually(lambda: "ScraperWorker failed" in printed.getvalue(), "the error is printed", 30)
    (line,) = printed.getvalue().splitlines()
    assert re.fullmatch(
        r"note: ScraperWorker failed at layers/\S+\.py:\d+: Defect: .*indexmill logs --request \S+\)", line
    )


@pytest.mark.parametrize("command", ["retry", "cancel", "replay"])
def test_every_command_takes_the_beginning_of_an_id(stack: RunningStack, failed: Job, command: str) -> None:
    answered = on(stack, command, failed.job_id[:13])
    assert "No such job" not in answered.stderr + answered.stdout
    assert "no job begins with" not in answered.stderr
    missing = on(stack, command, "ffffffff-ffff")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "no job begins with 'ffffffff-ffff'" in missing.stderr


def test_a_beginning_of_several_ids_lists_them(stack: RunningStack, client: Client) -> None:
    accepted = client.submit([f"{stack.site}/lost.html?{number}" for number in range(17)], CORPUS)
    # Of seventeen ids two begin with the same hexadecimal digit.
    (digit, _), *_ = Counter(job_id[0] for job_id in accepted.job_ids or []).most_common(1)
    refused = on(stack, "replay", digit)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"several ids begin with {digit}: " in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("invoke", "NoSuchFunction"), "ScraperWorker"),
        (("invoke", "ScraperWorker", "no-such-file.json"), "cannot be read"),
        (("invoke", "ScraperWorker", "README.md"), "is not JSON"),
        (("events", "no-such-event"), "sqs-scrape"),
    ],
)
def test_wrong_usage_is_reported(stack: RunningStack, arguments: tuple[str, ...], reported: str) -> None:
    refused = on(stack, *arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert reported in refused.stderr


@pytest.mark.shows("R042")
def test_metrics_are_what_functions_and_host_counted(stack: RunningStack, done: Job, failed: Job) -> None:
    def counted() -> dict[str, float] | None:
        answer = httpx.get(f"{stack.control}/metrics", timeout=10)
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = samples(answer.text)
        return found if 'jobs_failed_total{service="orchestrator",stage="scraping"}' in found else None

    found = eventually(counted, "the failed job is counted", 10)
    assert failed.failed_stage == "scraping"
    functions = stack.status()["functions"]
    assert found['lambda_invocations_total{function="ScraperWorker"}'] >= 1
    assert found['lambda_cold_starts_total{function="Authorizer"}'] >= 1
    assert found['lambda_duration_seconds_sum{function="EmbeddingWorker"}'] > 0
    assert found['lambda_environments{function="Migrator"}'] == functions["Migrator"]["environments"]
    assert {name for name in found if name.startswith("sqs_messages_visible")} == {
        f'sqs_messages_visible{{queue="{queue}"}}'
        for queue in stack.resources
        if queue.endswith(("Queue", "Dlq"))
    }


def test_status_sums_it_up(stack: RunningStack, done: Job, failed: Job) -> None:
    def counted() -> dict[str, Any] | None:
        reported: dict[str, Any] = json.loads(on(stack, "status", "--json").stdout)
        return reported if "jobs_failed_total" in {each["name"] for each in reported["metrics"]} else None

    found = eventually(counted, "the failed job is counted")
    assert found["queues"].keys() >= {"ScrapeQueue", "ScrapeDlq"}
    assert found["durations"]["ScraperWorker"]["p95_ms"] > 0
    shown = on(stack, "status").stdout
    for word in ("ScrapeQueue", "in its DLQ", "p95 ms", "jobs_failed_total", f"{stack.control}/metrics"):
        assert word in shown


def test_doctor_finds_nothing_wrong_where_a_stack_runs(stack: RunningStack) -> None:
    shown = on(stack, "doctor", "--json")
    found = json.loads(shown.stdout)
    assert [finding for finding in found["findings"] if finding["verdict"] == "wrong"] == []
    assert (shown.returncode, found["healthy"]) == (0, True)
    running = next(finding for finding in found["findings"] if finding["about"] == "stack")
    assert f"process {stack.pid}" in running["text"]


def test_a_shell_completes_functions_and_events() -> None:
    def completed(words: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "local.cli.app"],
            cwd=ROOT,
            env={"_INDEXMILL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "2"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.stdout.split()

    assert completed("indexmill invoke Scraper") == ["ScraperApi", "ScraperWorker"]
    assert completed("indexmill events sqs-") == ["sqs-scrape", "sqs-chunk", "sqs-embed", "sqs-callbacks"]

"""Notes of the logs command when no line matches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from local.cli import logs as command
from local.cli.app import app
from local.cli.terminal import EXIT_FAILED, EXIT_NO_STACK, EXIT_USAGE, Failure


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state folder in which one function has run, for one job."""
    folder = tmp_path / "logs" / "functions"
    folder.mkdir(parents=True)
    known = {"at": "2026-01-31T12:00:00.000Z", "function": "ScraperWorker", "request_id": "r1"}
    line = {**known, "stream": "platform", "message": "START RequestId: r1", "jobs": ["job-1"]}
    (folder / "ScraperWorker.jsonl").write_text(json.dumps(line) + "\n")
    entry = {"request_id": "g-1", "method": "GET", "path": "/nowhere", "status": "404"}
    entry["limit_req_status"] = "MISSING_AUTHENTICATION_TOKEN"
    (tmp_path / "logs" / "access.jsonl").write_text(json.dumps(entry) + "\n")
    return tmp_path


def logs(state: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["logs", *arguments, "--state", str(state)])


def test_what_is_there_is_printed_and_nothing_else_said(state: Path) -> None:
    for arguments in ((), ("ScraperWorker",), ("--job", "job-1"), ("--request", "r1")):
        found = logs(state, *arguments)
        assert (found.exit_code, found.stderr) == (0, "")
        assert "START RequestId: r1" in found.stdout


def test_a_job_without_lines_fails_and_names_the_trace(state: Path) -> None:
    found = logs(state, "--job", "job-2")
    assert (found.exit_code, found.stdout) == (EXIT_FAILED, "")
    assert "no function logged anything for job job-2" in found.stderr
    assert "indexmill trace job-2" in found.stderr


def test_a_job_whose_lines_are_of_other_functions_says_which(state: Path) -> None:
    found = logs(state, "ChunkingApi", "--job", "job-1")
    assert (found.exit_code, found.stdout) == (EXIT_FAILED, "")
    assert "ChunkingApi logged nothing of it; ScraperWorker did" in found.stderr


def test_a_request_that_the_gateway_answered_itself_is_found_there(state: Path) -> None:
    found = logs(state, "--request", "g-1")
    assert found.exit_code == EXIT_FAILED
    assert "answered 404 (MISSING_AUTHENTICATION_TOKEN) to GET /nowhere" in found.stderr
    unknown = logs(state, "--request", "g-2")
    assert (unknown.exit_code, "the gateway does not know it" in unknown.stderr) == (EXIT_FAILED, True)


def test_a_function_that_has_not_run_is_no_error_and_an_unknown_one_is(state: Path) -> None:
    idle = logs(state, "ChunkingApi")
    assert (idle.exit_code, idle.stdout) == (0, "")
    assert "ChunkingApi has not run yet" in idle.stderr
    unknown = logs(state, "NoSuchFunction")
    assert isinstance(unknown.exception, Failure)
    assert unknown.exception.exit_code == EXIT_USAGE
    assert "ChunkingApi" in str(unknown.exception)


def test_a_folder_without_any_stack_is_reported(tmp_path: Path) -> None:
    found = logs(tmp_path / "none")
    assert isinstance(found.exception, Failure)
    assert found.exception.exit_code == EXIT_NO_STACK


def test_following_waits_for_what_is_not_there_yet(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", interrupt)
    found = logs(state, "--follow", "--job", "job-2")
    assert (found.exit_code, found.stdout) == (0, "")
    assert "waiting, stop with Ctrl-C" in found.stderr

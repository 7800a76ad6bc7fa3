"""Releases on the local cloud while jobs run: a good one, a failing migration, a failing canary."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from local.faults.cloud import Cloud
from tests.support.repository import ROOT
from tests.support.stack import RunningStack, eventually, indexmill, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.shows("R190")]

PAGES = ("handbook.html", "workshops/bindery.html", "news/tide-clock.html", "history/flood-of-1911.html")
END_S = 120.0
VISIBILITY_S = 8
"""Less than the template allows, and longer than one page takes."""


@pytest.fixture(scope="module")
def releasing() -> Iterator[RunningStack]:
    with running_stack() as running:
        # What a failing version has received comes back after the visibility timeout.
        Cloud(asdict(running)).set_visibility(VISIBILITY_S)
        yield running


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of this release, to change."""
    for name in ("functions", "layers", "sql", "stack"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "template.yaml", tmp_path)
    return tmp_path


def release(stack: RunningStack, tree: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = indexmill("release", str(tree), "--json", "--state", stack.state, *options)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@contextmanager
def jobs_running(stack: RunningStack) -> Iterator[list[str]]:
    """Submit jobs until the block ends, which begins when some are accepted; they then all end well."""
    accepted: list[str] = []
    stop = threading.Event()

    def submit() -> None:
        with stack.client() as client:
            while not stop.wait(0.1):
                page = f"{stack.site}/{PAGES[len(accepted) % len(PAGES)]}"
                accepted.append(client.submit(page, f"release-{len(accepted)}").job_id)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        eventually(lambda: len(accepted) > 3, "jobs are accepted")
        yield accepted
    finally:
        stop.set()
        thread.join()
    with stack.client() as client:
        ended = client.wait(accepted, END_S)
    assert [(job.job_id, job.status, job.error) for job in ended if job.status != "done"] == []


def code_of(stack: RunningStack, function: str) -> str:
    answer = httpx.get(f"{stack.invoke_endpoint}/2015-03-31/functions/{function}", timeout=10.0)
    return str(answer.json()["Code"]["Location"])


def applied(stack: RunningStack, name: str) -> bool:
    with psycopg.connect(stack.database_url) as connection:
        found = connection.execute("SELECT count(*) FROM schema_migrations WHERE name = %s", (name,))
        return found.fetchone() == (1,)


def test_a_failing_migration_changes_no_function(releasing: RunningStack, tree: Path) -> None:
    before = code_of(releasing, "ScraperWorker")
    (tree / "sql/9998_broken.sql").write_text("CREATE TABLE half (); SELECT * FROM nowhere;")
    with jobs_running(releasing):
        code, outcome = release(releasing, tree)
    assert (code, outcome["released"]) == (1, False)
    assert "nowhere" in outcome["reason"]
    assert not applied(releasing, "9998_broken.sql")
    assert code_of(releasing, "ScraperWorker") == before


def test_a_failing_canary_is_taken_back_and_no_job_is_lost(releasing: RunningStack, tree: Path) -> None:
    before = code_of(releasing, "ScraperWorker")
    worker = tree / "functions/scraper/worker.py"
    worker.write_text(f"{worker.read_text()}\n\ndef handler(event, context):\n    raise ValueError('new')\n")
    (tree / "sql/9998_more.sql").write_text("CREATE TABLE more ();")
    with jobs_running(releasing) as accepted:
        code, outcome = release(releasing, tree, "--share", "50", "--seconds", "60")
        at_rollback = len(accepted)
        eventually(lambda: len(accepted) > at_rollback + 5, "jobs are accepted after the rollback")
    assert (code, outcome["released"]) == (1, False)
    assert outcome["errors"]["ScraperWorker"] >= 3
    assert set(outcome["errors"]) == {"ScraperWorker"}
    # The migration stays: the release before runs on it.
    assert outcome["migrations"] == ["9998_more.sql"]
    assert applied(releasing, "9998_more.sql")
    assert code_of(releasing, "ScraperWorker") == before


def test_a_release_that_works_takes_over(releasing: RunningStack, tree: Path) -> None:
    (tree / "sql/9998_more.sql").write_text("CREATE TABLE more ();")
    with jobs_running(releasing) as accepted:
        code, outcome = release(releasing, tree, "--share", "30", "--seconds", "3")
        after = len(accepted)
        eventually(lambda: len(accepted) > after + 5, "jobs are accepted after the release")
    assert (code, outcome["released"], outcome["errors"]) == (0, True, {})
    assert code_of(releasing, "ScraperWorker") == (tree / "functions/scraper").as_uri()


def test_a_tree_without_a_template_is_refused(releasing: RunningStack, tmp_path: Path) -> None:
    done = indexmill("release", str(tmp_path), "--state", releasing.state)
    assert (done.returncode, "has no template.yaml" in done.stderr) == (2, True)


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": "another"}])
def test_only_the_key_of_ops_releases(releasing: RunningStack, tree: Path, headers: dict[str, str]) -> None:
    wish = {"tree": str(tree), "share": 1, "seconds": 0}
    answer = httpx.post(f"{releasing.control}/releases", json=wish, headers=headers, timeout=10.0)
    assert answer.status_code == 403

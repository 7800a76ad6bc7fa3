"""A new field, error code, quota and route: each is added to one copy of the tree, and used there.

The files that are edited by hand are counted, without tests, docs (the examples of the API's description are
some) and generated ones. The copy passes the checks of types and style, its API's description is generated,
and its own functions run on Postgres and SQS.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local.backends.ministack import MiniStack
from tests.support.releases import Release
from tests.support.repository import ROOT
from tests.support.tree_copy import LIBRARY, Tree
from tests.support.upgrade import CALLER, Site, World, by, names, served_site

pytestmark = pytest.mark.integration


def add_field_of_a_submit(tree: Tree) -> None:
    """Add `label`, which a caller gives and a job shows."""
    tree.edit(
        f"{LIBRARY}/contracts/job.py",
        (
            "    budget: Budget | None = None\n",
            "    label: str | None = Field(default=None, max_length=20)\n    budget: Budget | None = None\n",
        ),
        ("    title: str | None = None\n", "    title: str | None = None\n    label: str | None = None\n"),
    )
    tree.edit(
        f"{LIBRARY}/orchestrator/store/rows.py",
        (
            '    max_age_s: int | None = None\n    """Up',
            '    label: str | None = None\n    max_age_s: int | None = None\n    """Up',
        ),
    )
    tree.edit(
        f"{LIBRARY}/orchestrator/store/admission.sql",
        (
            "accept, kind, site, next_eligible_at, blocked_by)",
            "accept, label, kind, site, next_eligible_at, blocked_by)",
        ),
        ("%(accept)b::text[], %(kind)s, site", "%(accept)b::text[], %(label)s, %(kind)s, site"),
    )
    tree.edit(
        f"{LIBRARY}/orchestrator/store/jobs.sql",
        ("chunk_count, title, tries", "chunk_count, title, label, tries"),
    )
    tree.add("sql/9001_label.sql", "ALTER TABLE jobs ADD COLUMN label TEXT;\n")


def add_field_of_a_stage(tree: Tree) -> None:
    """Add `longest`, which Chunking reports and a job shows."""
    tree.edit(
        f"{LIBRARY}/contracts/messages.py",
        (
            "    chunk_count: Count = 0\n    chunker: str",
            "    chunk_count: Count = 0\n    longest: Count = 0\n    chunker: str",
        ),
    )
    tree.edit(
        f"{LIBRARY}/chunking/worker.py",
        (
            "                reporter.success(at, chunked=chunked)",
            "                tokens = [chunk.tokens for chunk in chunked.chunks or ()]\n"
            '                longest = chunked.model_copy(update={"longest": max(tokens, default=0)})\n'
            "                reporter.success(at, chunked=longest)",
        ),
    )
    tree.edit(
        f"{LIBRARY}/orchestrator/stages/chunking.py",
        (
            '        "chunk_count": chunked.chunk_count,\n',
            '        "chunk_count": chunked.chunk_count,\n        "longest": chunked.longest,\n',
        ),
    )
    tree.edit(
        f"{LIBRARY}/orchestrator/store/jobs.sql",
        ("determinism->'notes' AS notes", "determinism->'notes' AS notes, determinism->'longest' AS longest"),
    )
    tree.edit(
        f"{LIBRARY}/contracts/job.py",
        ("    title: str | None = None\n", "    title: str | None = None\n    longest: int | None = None\n"),
    )


def add_error_code(tree: Tree) -> None:
    """Add `page_is_secret`, by which the pages of a path fail."""
    tree.edit(
        f"{LIBRARY}/contracts/errors.py",
        (
            "    ROBOTS_NOINDEX = ",
            '    PAGE_IS_SECRET = "page_is_secret", "The page is a secret"\n    ROBOTS_NOINDEX = ',
        ),
    )
    tree.edit(
        f"{LIBRARY}/scraper/scrape.py",
        (
            "    if kind is not Kind.PDF and len",
            '    if "/secret-" in asked:\n        raise failure(ErrorCode.PAGE_IS_SECRET)\n'
            "    if kind is not Kind.PDF and len",
        ),
    )


def add_quota(tree: Tree) -> None:
    """Add `failures_per_day`: jobs of a caller that may fail in a day before its further ones wait."""
    tree.edit(
        f"{LIBRARY}/contracts/identity.py",
        ('    "quota_chunks",\n    "dep', '    "quota_chunks",\n    "quota_failures",\n    "dep'),
        (
            "    job_chunks: int | None",
            "    failures_per_day: int | None = Field(default=None, ge=1)\n"
            '    """Jobs failed since midnight UTC."""\n'
            "    job_chunks: int | None",
        ),
        ("    chunks_today: int = 0\n", "    chunks_today: int = 0\n    failed_today: int = 0\n"),
        (
            "START_QUOTAS: Final = (\n",
            "START_QUOTAS: Final = (\n"
            "    StartQuota(\n"
            '        "failed_today",\n'
            '        "quota_failures",\n'
            "        lambda quota: quota.failures_per_day,\n"
            "        lambda usage: usage.failed_today,\n"
            "        lambda usage, now: next_midnight(now) if usage.failed_today else None,\n"
            "        counts_jobs=False,\n"
            "    ),\n",
        ),
    )
    text = (tree.folder / "template.yaml").read_text(encoding="utf-8")
    assert text.count("burst|chunks_per_day") == 6  # twice in each of three parameters
    tree.add("template.yaml", text.replace("burst|chunks_per_day", "burst|failures_per_day|chunks_per_day"))
    tree.add(
        "sql/9002_failures.sql",
        """
ALTER TYPE caller_usage ADD ATTRIBUTE failed_today INTEGER CASCADE;
ALTER FUNCTION usage_of_caller RENAME TO usage_without_failures;
CREATE FUNCTION usage_of_caller(
    caller TEXT, told_tier TEXT, max_active INTEGER, remembered INTEGER, places INTEGER
)
RETURNS caller_usage LANGUAGE plpgsql AS $$
DECLARE found caller_usage;
BEGIN
    found := usage_without_failures(caller, told_tier, max_active, remembered, places);
    SELECT count(*) INTO found.failed_today FROM jobs
    WHERE caller_id = caller AND status = 'failed' AND updated_at >= date_trunc('day', now(), 'UTC');
    RETURN found;
END
$$;
""",
    )


def add_route(tree: Tree) -> None:
    """Add GET /orchestrator/jobs/{job_id}/title."""
    tree.edit(
        f"{LIBRARY}/contracts/job.py",
        (
            "class SubmitResponse(BaseModel):",
            'class DocumentTitle(BaseModel):\n    """Title of a document."""\n\n    title: str | None\n\n\n'
            "class SubmitResponse(BaseModel):",
        ),
    )
    tree.edit(
        f"{LIBRARY}/orchestrator/http/api.py",
        ("    Health,\n    Job,", "    DocumentTitle,\n    Health,\n    Job,"),
        (
            '    @router.get("/limits"',
            '    @router.get("/jobs/{job_id}/title", summary="Title of a document", openapi_extra=_READ)\n'
            "    async def get_title(job_id: str, ctx: Caller) -> DocumentTitle:\n"
            '        """Return it."""\n'
            "        return DocumentTitle(title=api.read.get(ctx, job_id, receipt=False).title)\n\n"
            '    @router.get("/limits"',
        ),
    )
    tree.edit(
        "template.yaml",
        (
            "            Path: /orchestrator/jobs/{job_id}/history\n",
            "            Path: /orchestrator/jobs/{job_id}/history\n"
            "        Title:\n"
            "          Type: Api\n"
            "          Properties:\n"
            "            RestApiId: !Ref Api\n"
            "            TimeoutInMillis:"
            " !FindInMap [IntegrationTimeouts, !Ref IntegrationTimeoutSeconds, Millis]\n"
            "            Method: get\n"
            "            Path: /orchestrator/jobs/{job_id}/title\n",
        ),
        (
            '          "/orchestrator/jobs/{job_id}/history": {options: *preflight}\n',
            '          "/orchestrator/jobs/{job_id}/history": {options: *preflight}\n'
            '          "/orchestrator/jobs/{job_id}/title": {options: *preflight}\n',
        ),
    )
    tree.edit(
        EXAMPLES,
        (
            "  GET /orchestrator/jobs/{job_id}/history:\n",
            '  GET /orchestrator/jobs/{job_id}/title:\n    "200":\n      title: About\n'
            "  GET /orchestrator/jobs/{job_id}/history:\n",
        ),
    )


ADDITIONS: dict[str, tuple[Callable[[Tree], None], int]] = {
    "a field that is given at submit": (add_field_of_a_submit, 6),
    "a field that a stage reports": (add_field_of_a_stage, 6),
    "an error code": (add_error_code, 2),
    "a quota": (add_quota, 4),
    "a route": (add_route, 3),
}
"""What is added, and how many files it may take. A migration is one of them."""
EXAMPLES = "tools/openapi_examples.yaml"


@pytest.fixture(scope="module")
def additions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tree, dict[str, set[str]]]:
    """Return a copy with all of them, and the files that each took."""
    tree = Tree(tmp_path_factory.mktemp("new-rows"), "pyproject.toml", "stack")
    files: dict[str, set[str]] = {}
    for name, (add, _) in ADDITIONS.items():
        tree.edited = set()
        add(tree)
        files[name] = tree.edited
    return tree, files


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served_site() as site:
        yield site


@pytest.fixture(scope="module")
def release(
    additions: tuple[Tree, dict[str, set[str]]],
    site: Site,
    ministack: MiniStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Release]:
    log = tmp_path_factory.mktemp("log") / "log"
    quota = {"QuotaFree": "failures_per_day=1"}
    release = Release("new rows", additions[0].folder, ministack.endpoint, site.address, log, **quota)
    yield release
    release.close()


@pytest.fixture
def world(database_url: str, release: Release, site: Site) -> World:
    return World.of(release, database_url, "new-rows", site)


def shown(world: World, job_id: str, more: str = "") -> Any:
    return world.new.http("GET", f"/orchestrator/jobs/{job_id}{more}", caller=CALLER)


@pytest.mark.parametrize("addition", ADDITIONS)
def test_an_addition_takes_few_files(addition: str, additions: tuple[Tree, dict[str, set[str]]]) -> None:
    _, files = additions
    taken = files[addition] - {EXAMPLES}
    assert len(taken) <= ADDITIONS[addition][1], sorted(taken)


def test_the_copy_passes_the_checks(additions: tuple[Tree, dict[str, set[str]]]) -> None:
    """Its API's description is generated first, as by `make generate`."""
    folder = additions[0].folder
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{folder / 'layers/indexmill/python'}"}
    subprocess.run([sys.executable, "-P", folder / "tools" / "openapi.py"], env=environment, check=True)
    bin_folder = Path(sys.executable).parent
    for command in (
        [sys.executable, "-P", folder / "tools" / "openapi.py", "--check"],
        [bin_folder / "ruff", "check", "layers", "functions", "tools"],
        [
            bin_folder / "mypy",
            "--cache-dir",
            ROOT / ".mypy_cache" / "new_rows",
            "layers/indexmill/python",
            "functions",
        ],
    ):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    described = (folder / "stack" / "openapi.yaml").read_text(encoding="utf-8")
    assert "/orchestrator/jobs/{job_id}/title:" in described
    assert "page_is_secret" in described


def test_new_fields_and_the_new_route_show_what_was_given_and_reported(world: World) -> None:
    (page,) = names()
    (job_id,) = world.submit(world.new, page, label="mine")
    assert shown(world, job_id)["label"] == "mine"
    world.queues.drain(by(world.new))
    job = shown(world, job_id)
    assert (job["status"], job["label"]) == ("done", "mine")
    (tokens,) = world.rows("SELECT max(tokens) FROM chunks")
    assert job["longest"] == tokens[0] > 0
    assert shown(world, job_id, "/title") == {"title": job["title"]}
    assert job["title"]


def test_the_new_code_fails_a_job_and_the_new_quota_holds_back_the_next(world: World) -> None:
    secret, other = f"secret-{names()[0]}", names()[0]
    (failed,) = world.submit(world.new, secret)
    world.queues.drain(by(world.new))
    error = shown(world, failed)["error"]
    assert (error["code"], error["message"]) == ("page_is_secret", "The page is a secret")
    (waits,) = world.submit(world.new, other)
    assert shown(world, waits)["waiting"]["reason"] == "quota_failures"
    limits = world.new.http("GET", "/orchestrator/limits", caller=CALLER)["jobs"]
    assert [(each["limit"], each["used"]) for each in limits if each["name"] == "failed_today"] == [(1, 1)]

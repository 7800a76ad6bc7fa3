"""The database is lost and restored from a base backup and archived WAL, while jobs are in flight.

Jobs that were committed before the point in time of the restore end; of those that were committed after it
only the messages are left, which change nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from local.backends.postgres import EmbeddedPostgres
from local.backends.postgres_home import BIN_ENV, default_cache, find_programs, server_account
from local.faults.invariants.report import violations, wait_until_idle
from local.faults.invariants.violation import Accepted
from local.faults.rules import Rule
from local.faults.toxics import Toxic
from tests.faults.arena import VISIBILITY_S, Arena
from tests.support.repository import ROOT
from tests.support.stack import eventually, open_folder, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LOST_S: Final = 5.0
"""What is committed is in the archive after so long, and so survives the loss of the server."""
CORPUS: Final = "restore"
GAP: Final = 1_000_000
ARCHIVING: Final = {
    "wal_level": "replica",
    "max_wal_senders": "4",
    "archive_mode": "on",
    "archive_timeout": "1s",
}
SLOW: Final = Rule("ScraperWorker/http.get@page", "delay", times=10**6, seconds=2.0, mark="slow", name="slow")
_SEQUENCES: Final = (
    "SELECT sequencename, coalesce(last_value, 0) FROM pg_sequences WHERE schemaname = 'public'"
)


@dataclass(frozen=True, slots=True)
class Site:
    """Folders of the backup, and the files that hold the server or its archiver back while they exist."""

    folder: Path
    real: Path
    """Folder of Postgres' own programs."""

    @property
    def programs(self) -> Path:
        return self.folder / "programs"

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    @property
    def base(self) -> Path:
        return self.folder / "restored" / "postgres"

    @property
    def not_archived(self) -> Path:
        return self.folder / "not-archived"

    @property
    def held(self) -> Path:
        return self.folder / "held"

    def prepare(self) -> None:
        """Write a `postgres` that archives its WAL, and waits while it is held before it starts."""
        account = server_account()
        for each in (self.programs, self.archive, self.base.parent):
            each.mkdir(parents=True, exist_ok=True)
            each.chmod(0o755)
        account.take_ownership(self.archive)
        account.take_ownership(self.base.parent)
        part, whole = f"{self.archive}/.%f", f"{self.archive}/%f"
        copy = f"test ! -e {self.not_archived} && cp %p {part} && mv {part} {whole}"
        options = " ".join(f"--{name}={value}" for name, value in ARCHIVING.items())
        wrapper = (
            f"#!/bin/sh\nwhile [ -e {self.held} ]; do sleep 0.05; done\n"
            f'exec {self.real}/postgres "$@" {options} --archive_command={shlex.quote(copy)}\n'
        )
        for name, text in {
            "postgres": wrapper,
            "initdb": f'#!/bin/sh\nexec {self.real}/initdb "$@"\n',
        }.items():
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)

    def back_up(self, url: str) -> None:
        """Take a base backup without WAL, which is in the archive."""
        account = server_account()
        program = self.real / "pg_basebackup"
        command = [program, "--dbname", url, "--pgdata", self.base, "--wal-method=none", "--checkpoint=fast"]
        subprocess.run(command, check=True, capture_output=True, cwd="/", **account.popen_options())

    def recover(self) -> EmbeddedPostgres:
        """Start a new server on the base backup and the archived WAL; return it when it accepts writes."""
        account = server_account()
        (self.base / "recovery.signal").touch()
        account.take_ownership(self.base)
        settings = {**ARCHIVING, "archive_mode": "off", "restore_command": f"cp {self.archive}/%f %p"}
        server = EmbeddedPostgres(self.base.parent, settings=settings, bin_dir=self.real)
        url = server.start()

        def writable() -> bool:
            with psycopg.connect(url) as connection:
                return connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)

        eventually(writable, "the restored server has left recovery")
        return server


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with open_folder() as folder:
        account = server_account()
        made = Site(folder, find_programs(account, default_cache(account), None))
        made.prepare()
        yield made


@pytest.fixture(scope="module")
def own_arena(site: Site) -> Iterator[Arena]:
    """Yield a stack of its own whose server archives its WAL."""
    patch = pytest.MonkeyPatch()
    patch.setenv(BIN_ENV, str(site.programs))
    with patch.context(), open_folder() as pages, running_stack(faults="on", site_root=pages) as stack:
        made = Arena(stack, pages)
        yield made
        made.cloud.close()
    patch.undo()


def rows(arena: Arena, statement: str, *values: Any) -> list[Any]:
    with arena.cloud.database() as database:
        return database.execute(statement.encode(), values).fetchall()


def waiting_in(arena: Arena, stage: str, jobs: list[Accepted]) -> bool:
    """Return whether all jobs have a sent message of the stage."""
    statement = (
        "SELECT count(*) FROM jobs JOIN outbox ON job_id = jobs.id AND outbox.stage = status"
        " WHERE status = %s AND sent_at IS NOT NULL AND jobs.id = ANY(%s)"
    )
    return rows(arena, statement, stage, [job.job_id for job in jobs]) == [(len(jobs),)]


def documents(arena: Arena) -> list[Any]:
    return [row for (row,) in rows(arena, "SELECT to_jsonb(d) FROM documents AS d ORDER BY id")]


def archived_after(arena: Arena) -> float:
    """Return the seconds until what is committed now is in the archive."""
    began = time.monotonic()
    ((needed,),) = rows(arena, "SELECT pg_walfile_name(pg_current_wal_lsn())")

    def archived() -> bool:
        ((last,),) = rows(arena, "SELECT coalesce(last_archived_wal, '') FROM pg_stat_archiver")
        return bool(last[:24] >= needed)

    eventually(archived, "the WAL is archived")
    return time.monotonic() - began


def pause(arena: Arena, stage: str) -> None:
    rows(
        arena,
        "INSERT INTO pauses (stage, reason, paused_by) VALUES (%s, 'restore', 'test') RETURNING 1",
        stage,
    )
    arena.cloud.sweep()


def lose_the_server(arena: Arena, site: Site) -> Path:
    """Kill the server and take its data away; return the folder where the stack's server has its data."""
    ((data,),) = rows(arena, "SHOW data_directory")
    pid = arena.stack.status()["services"]["postgres"]["pid"]
    site.held.touch()
    arena.control.set_toxics(postgres=Toxic("down"))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: arena.stack.status()["services"]["postgres"]["pid"] != pid, "the server is gone")
    shutil.rmtree(data)
    return Path(data)


def after_restore(url: str) -> None:
    """Run the documented command."""
    command = [sys.executable, ROOT / "sql" / "migrate.py", "--after-restore", url]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs at the time when the server is lost."""

    done: list[Accepted]
    in_flight: list[Accepted]
    lost: list[Accepted]
    """Committed after the last WAL that was archived."""

    @property
    def kept(self) -> list[Accepted]:
        return [*self.done, *self.in_flight]


def submit_before_the_loss(arena: Arena, site: Site) -> Jobs:
    """Back up with documents published; leave jobs in flight, and two that were never archived."""
    arena.cloud.set_visibility(VISIBILITY_S)
    pages = [arena.page(arena.token("kept")) for _ in range(3)]
    done = [arena.submit(page, corpus=CORPUS) for page in pages]
    arena.end_with_sweeps(done, 60)
    site.back_up(arena.stack.database_url)
    pause(arena, "embedding")
    arena.control.arm([SLOW])
    queued = [arena.submit(arena.page(arena.token("kept")), corpus=CORPUS) for _ in range(4)]
    scraping = [arena.submit(arena.page(arena.token(SLOW.mark)), corpus=CORPUS) for _ in range(2)]
    eventually(lambda: waiting_in(arena, "embedding", queued), "jobs wait to be embedded")
    assert archived_after(arena) <= LOST_S

    site.not_archived.touch()
    # A new document, and a new version of one that is published.
    changed = arena.site_root / pages[0].path.lstrip("/")
    changed.write_text(changed.read_text() + "<p>It has a second part.</p>")
    known = len(arena.accepted)
    lost = [arena.submit(page, corpus=CORPUS) for page in (arena.page(arena.token("lost")), pages[0])]
    eventually(lambda: waiting_in(arena, "embedding", lost), "the jobs that will be lost wait to be embedded")
    del arena.accepted[known:]
    return Jobs(done, [*queued, *scraping], lost)


def sequences(database: psycopg.Connection[Any]) -> dict[str, int]:
    return dict(database.execute(_SEQUENCES).fetchall())


def restore(arena: Arena, site: Site, jobs: Jobs) -> None:
    """Lose the server and put one that was restored in its place, with the jobs that were archived."""
    data = lose_the_server(arena, site)
    server = site.recover()
    with psycopg.connect(server.url, autocommit=True) as restored:
        found = {job_id for (job_id,) in restored.execute("SELECT id FROM jobs").fetchall()}
        assert found == {job.job_id for job in jobs.kept}
        before = sequences(restored)
        after_restore(server.url)
        moved = {name: number - before[name] for name, number in sequences(restored).items()}
    assert moved.pop("chunk_blocks") > 300_000
    assert set(moved.values()) == {GAP}
    server.stop()
    shutil.move(site.base, data)
    site.held.unlink()
    eventually(lambda: arena.stack.status()["services"]["postgres"]["serving"], "the restored server serves")


@pytest.mark.fault("F79")
def test_jobs_in_flight_end_on_a_restored_database_and_lost_ones_change_nothing(
    own_arena: Arena, site: Site
) -> None:
    jobs = submit_before_the_loss(own_arena, site)
    before = documents(own_arena)
    restore(own_arena, site, jobs)
    assert documents(own_arena) == before
    own_arena.control.set_toxics()
    own_arena.control.arm()
    rows(own_arena, "DELETE FROM pauses RETURNING 1")
    quiet = wait_until_idle(own_arena.cloud, 90)
    assert quiet.reached, quiet
    assert set(own_arena.statuses(jobs.kept).values()) == {"done"}
    # I4, I6: the messages of lost jobs were delivered too, and published nothing.
    after = documents(own_arena)
    assert [each for each in after if each in before] == before
    assert {each["job_id"] for each in after} == {job.job_id for job in jobs.kept}
    assert own_arena.statuses(jobs.lost) == {}
    assert [str(each) for each in violations(own_arena.cloud, own_arena.accepted)] == []

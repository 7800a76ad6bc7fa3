"""The local cloud deletes only what it created, in any working folder and at any call."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.backends.postgres import EmbeddedPostgres
from local.compute.cpu_share import CpuWatch
from local.compute.environment_variables import EnvironmentFactory
from local.compute.host import LambdaHost
from local.compute.launcher import Launcher, SupervisorLost
from local.compute.log_files import LogFiles
from local.compute.memory import MemoryWatch
from local.compute.process import HostContext
from local.compute.process_stats import IdleCpu
from local.stack.state import StateFolder
from tests.integration.compute.harness import REGION, Lab, answer, call, fault


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a working directory with a user's files in it."""
    folder = tmp_path / "somebodys"
    (folder / "00001").mkdir(parents=True)
    (folder / "precious.txt").write_text("the only copy")
    (folder / "00001" / "precious.txt").write_text("the other only copy")
    monkeypatch.chdir(folder)
    return folder


def listing(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def never_started(lab: Lab, home: Path) -> LambdaHost:
    """Return a host that the lab does not stop: by then the working directory has changed."""
    host = lab.host()
    lab.hosts.remove(host)
    assert Path.cwd() == home
    return host


async def test_stopping_a_host_that_was_never_started_deletes_nothing(forking: Lab, home: Path) -> None:
    before = listing(home)
    host = never_started(forking, home)
    await host.stop()
    await host.stop()
    assert listing(home) == before


async def test_a_function_of_a_host_that_was_never_started_fails_and_deletes_nothing(
    forking: Lab, home: Path
) -> None:
    before = listing(home)
    host = never_started(forking, home)
    host.add([forking.function()])
    kind, message = fault(await call(host))
    assert (kind, message) == ("Sandbox.StartFailure", "the host is not running")
    await host.stop()
    assert listing(home) == before


async def test_a_host_deletes_only_its_own_folder(forking: Lab, home: Path) -> None:
    before = listing(home)
    host = await forking.start(forking.function())
    await answer(host)
    await host.stop()
    await host.stop()
    assert listing(home) == before


async def test_a_folder_that_exists_is_not_taken_for_a_process(tmp_path: Path, home: Path) -> None:
    factory = EnvironmentFactory(REGION, "123456789012")
    logs = LogFiles(tmp_path / "logs")
    context = HostContext(Launcher("fork", (), {}), logs, factory, MemoryWatch(), CpuWatch(), IdleCpu())
    with pytest.raises(SupervisorLost):
        context.make_folder("00001")
    context.scratch = home
    with pytest.raises(FileExistsError):
        context.make_folder("00001")
    assert context.make_folder("00002") == home / "00002"


async def test_a_process_that_cannot_have_its_folder_leaves_it_alone(forking: Lab, home: Path) -> None:
    before = listing(home)
    host = await forking.start(forking.function())
    made, host._context.scratch = host._context.scratch, home
    assert fault(await call(host))[0] == "Sandbox.StartFailure"
    host._context.scratch = made
    assert (await answer(host, "next"))["event"] == "next"
    await host.stop()
    assert listing(home) == before


def test_a_state_folder_with_other_files_is_not_deleted(home: Path) -> None:
    state = StateFolder(Path())
    state.acquire()
    state.keys()
    state.release()
    state.delete()
    assert (home / "precious.txt").read_text() == "the only copy"
    assert (home / "00001" / "precious.txt").read_text() == "the other only copy"


def test_a_state_folder_that_was_never_acquired_is_not_deleted(home: Path) -> None:
    before = listing(home)
    StateFolder(home).delete()
    assert listing(home) == before


@pytest.mark.parametrize("made", [False, True])
def test_a_state_folder_that_was_new_is_deleted(tmp_path: Path, made: bool) -> None:
    folder = tmp_path / "state"
    if made:  # as the parent of a detached stack does
        (folder / "logs").mkdir(parents=True)
        (folder / "logs" / "stack.log").touch()
    state = StateFolder(folder)
    state.acquire()
    state.keys()
    (state.logs / "functions").mkdir()
    state.release()
    state.delete()
    assert not folder.exists()


def test_a_folder_without_postgres_data_is_not_deleted(tmp_path: Path, home: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "postgres").touch()
    (home / "postgres").mkdir()
    (home / "postgres" / "notes.txt").write_text("about the elephant")
    server = EmbeddedPostgres(Path(), bin_dir=programs, cache_dir=tmp_path)
    server.data_dir = home / "postgres"  # also where the server's account has no access
    server.delete()
    assert (home / "postgres" / "notes.txt").read_text() == "about the elephant"

"""Environments forked from a process with the project's packages are as those of a new interpreter."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from local.compute import reload
from local.compute.host import LambdaHost
from local.compute.launcher import DEFAULT_PRELOAD
from tests.integration.compute.harness import Lab, alive, answer, call, until, value
from tests.integration.compute.test_reload import changes_to
from tests.support.function_env import ROOT, environment, functions

LOOK = """
import importlib, os, sys, tempfile, time

sys.path.insert(1, {folder!r})
real = importlib.import_module({module!r}).handler

def handler(event, context):
    return {{
        "modules": sorted(sys.modules),
        "env": dict(os.environ),
        "path": sys.path,
        "temp": tempfile.gettempdir() == os.environ["TMPDIR"],
        "zone": time.tzname,
    }}
"""
STDERR = 2
OF_THE_PROCESS = {
    "AWS_LAMBDA_RUNTIME_API",
    "AWS_LAMBDA_LOG_STREAM_NAME",
    "HOME",
    "TMPDIR",
    "_X_AMZN_TRACE_ID",
}
BY_EXTENSIONS = {"__mp_main__", "cython_runtime"}
"""Names without a module's file: an alias of the program, and what Cython's modules have in common."""
OF_EACH_SERVICE = (
    "Authorizer",
    "OrchestratorResults",
    "ScraperWorker",
    "ChunkingApi",
    "EmbeddingReadApi",
    "Audit",
)

MILL = """
import os

PID = os.getpid()
VERSION = {version}
"""
PART = """
import os
import idna

PID = os.getpid()
VERSION = getattr(idna, "OWNER", "interpreter")
"""
USE = """
import os
import mill.part

def handler(event, context):
    if event:
        open(event["began"], "w").close()
        while not os.path.exists(event["until"]):
            pass
    return [mill.part.VERSION, mill.part.PID, os.getpid()]
"""


def mill(lab: Lab, version: int, name: str = "part") -> None:
    lab.write("layer/python/mill/__init__.py", "")
    lab.write(f"layer/python/mill/{name}.py", MILL.format(version=version))


async def warm_host(lab: Lab) -> LambdaHost:
    """Return a host whose environments are forked from a process with version 1 of the package `mill`."""
    mill(lab, 1)
    spec = lab.function(USE, layer_dirs=(lab.folder / "layer",), timeout_s=30)
    return await lab.start(spec, watched_packages=("mill",), preload=("json",))


async def looks(lab: Lab, preload: tuple[str, ...]) -> dict[str, Any]:
    """Return what a function of each service sees, with its real handler loaded."""
    known, specs = functions(), []
    for name in OF_EACH_SERVICE:
        module = known[name]["Handler"].partition(".")[0]
        lab.write(
            f"code/{name}/look.py", LOOK.format(folder=str(ROOT / known[name]["CodeUri"]), module=module)
        )
        layers = (ROOT / "layers" / "indexmill",)
        specs.append(
            lab.function("", name, handler="look.handler", layer_dirs=layers, environment=environment(name))
        )
        (lab.folder / "code" / name / "app.py").unlink()
    host = await lab.start(*specs, preload=preload)
    return {name: await answer(host, None, name) for name in OF_EACH_SERVICE}


async def test_modules_environment_and_zone_are_those_of_a_new_interpreter(tmp_path: Path) -> None:
    forking, executing = Lab(tmp_path / "fork", "fork"), Lab(tmp_path / "exec", "exec")
    try:
        warm, new = await looks(forking, DEFAULT_PRELOAD), await looks(executing, ())
        [parent] = forking.hosts[0].warm_pids
        assert len(list(Path(f"/proc/{parent}/task").iterdir())) == 1
        links = [link for link in Path(f"/proc/{parent}/fd").iterdir() if int(link.name) > STDERR]
        opened = sorted(str(link.readlink()).partition(":")[0] for link in links)
        # One connection, to the host, and what wakes it when a child ends.
        assert opened == ["pipe", "pipe", "socket"]
    finally:
        await forking.close()
        await executing.close()
    for name in OF_EACH_SERVICE:
        extensions = {each for each in new[name]["modules"] if each.startswith("_cython_")} | BY_EXTENSIONS
        assert set(warm[name]["modules"]) | extensions == set(new[name]["modules"]) | extensions, name
        for variable in OF_THE_PROCESS:
            warm[name]["env"].pop(variable), new[name]["env"].pop(variable)
        here = json.loads(json.dumps(warm[name]).replace(str(forking.folder), str(executing.folder)))
        for part in ("env", "path", "temp", "zone"):
            assert here[part] == new[name][part], (name, part)


async def test_the_processes_before_the_fork_have_no_credentials(forking: Lab) -> None:
    host = await warm_host(forking)
    await answer(host)
    for pid in (host.supervisor_pid, *host.warm_pids):
        given = Path(f"/proc/{pid}/environ").read_text().split("\0")
        names = {each.partition("=")[0] for each in given if each}
        assert names <= {"PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "TZ", "HOME"}


async def test_packages_are_imported_once_before_the_fork_for_each_version(forking: Lab) -> None:
    host = await warm_host(forking)
    version, imported_in, first = await answer(host)
    assert (version, [imported_in]) == (1, host.warm_pids)
    os.kill(first, signal.SIGKILL)
    await until(lambda: host.stats()["fn"].environments == 0)
    assert (await answer(host))[:2] == [1, imported_in]
    mill(forking, 2)

    async def imported() -> Any:
        host.update_environment({})  # so that each invocation gets a new environment
        version, pid, _ = await answer(host)
        return [version, [pid] == host.warm_pids]

    # The first environment after an edit imports what it needs by itself.
    await changes_to(imported, [2, True])
    await until(lambda: not alive(imported_in))


async def test_an_edit_that_a_function_noticed_is_in_its_next_environment(
    forking: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await warm_host(forking)
    assert (await answer(host))[0] == 1
    mill(forking, 22)
    monkeypatch.setattr(reload, "_INTERVAL_S", 0.0)
    noticed = asyncio.ensure_future(call(host))
    await asyncio.sleep(0)
    # The new environment starts before the code is looked at again.
    monkeypatch.setattr(reload, "_INTERVAL_S", 3600.0)
    assert value(await noticed)[0] == 22


async def test_packages_import_what_their_layer_has_of_its_own(forking: Lab) -> None:
    forking.write("layer/python/idna.py", "OWNER = 'layer'\n")
    mill(forking, 1)
    forking.write("layer/python/mill/part.py", PART)
    spec = forking.function(USE, layer_dirs=(forking.folder / "layer",))
    host = await forking.start(spec, watched_packages=("mill",), preload=("idna",))
    version, imported_in, _ = await answer(host)
    assert (version, [imported_in]) == ("layer", host.warm_pids)


async def test_an_invocation_ends_with_the_packages_it_began_with(forking: Lab) -> None:
    host = await warm_host(forking)
    began, go = forking.folder / "began", forking.folder / "go"
    running = forking_call(host, began, go)
    await until(began.exists)
    mill(forking, 2)

    async def version() -> Any:
        return (await answer(host))[0]

    await changes_to(version, 2)
    go.touch()
    assert value(await running)[0] == 1


def forking_call(host: LambdaHost, began: Path, go: Path) -> Awaitable[Any]:
    return asyncio.ensure_future(call(host, {"began": str(began), "until": str(go)}))


@pytest.mark.parametrize(
    "killed", [lambda host: host.warm_pids[0], lambda host: host.supervisor_pid], ids=("warm", "first")
)
async def test_a_killed_supervisor_takes_its_processes_with_it(
    forking: Lab, killed: Callable[[LambdaHost], int]
) -> None:
    host = await warm_host(forking)
    _, parent, environment_pid = await answer(host)
    os.kill(killed(host), signal.SIGKILL)
    await until(lambda: not alive(parent) and not alive(environment_pid))
    assert (await answer(host))[0] == 1
    assert host.warm_pids != [parent]


async def test_a_module_that_cannot_be_imported_matters_only_to_a_function_that_imports_it(
    forking: Lab,
) -> None:
    mill(forking, 1)
    forking.write("layer/python/mill/broken.py", "import mill.missing\n")
    specs = [
        forking.function(code, name, layer_dirs=(forking.folder / "layer",))
        for name, code in (("fn", USE), ("broken", "import mill.broken\n" + USE))
    ]
    host = await forking.start(*specs, watched_packages=("mill",), preload=("json",))
    assert [(await answer(host))[1]] == host.warm_pids
    assert b"No module named 'mill.missing'" in (await call(host, None, "broken")).payload


async def test_a_package_whose_import_ends_the_process_is_imported_by_its_environments(
    forking: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    mill(forking, 1)
    forking.write("layer/python/mill/ends.py", "import os\nos._exit(3)\n")
    spec = forking.function(USE, layer_dirs=(forking.folder / "layer",))
    host = await forking.start(spec, watched_packages=("mill",), preload=("json",))
    version, imported_in, pid = await answer(host)
    assert (version, imported_in, host.warm_pids) == (1, pid, [])
    assert "could not import mill before the fork" in caplog.text

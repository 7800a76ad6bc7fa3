"""Errors of code that cannot be loaded; fixed code works at the next call."""

from __future__ import annotations

import asyncio

import pytest

from local.compute.host import LambdaHost
from local.compute.invocation import LogTail
from local.logbook.records import LogFolder
from local.logbook.selection import Selection
from tests.integration.compute.harness import ECHO, Lab, alive, answer, call, fault, noted_pid, until

REPAIRED_WITHIN_S = 8.0


async def check_works_once_repaired(lab: Lab, host: LambdaHost) -> None:
    lab.write("code/fn/app.py", ECHO)
    deadline = asyncio.get_running_loop().time() + REPAIRED_WITHIN_S
    # The watch checks at most once in 100 ms.
    while (result := await call(host, "mended")).function_error is not None:
        assert asyncio.get_running_loop().time() < deadline, result.payload
        await asyncio.sleep(0.02)
    assert (await answer(host, "mended"))["event"] == "mended"


@pytest.mark.parametrize(
    ("code", "kind", "part"),
    [
        ("import no_such_thing\n", "Runtime.ImportModuleError", "No module named 'no_such_thing'"),
        ("from json import no_such_name\n", "Runtime.ImportModuleError", "cannot import name 'no_such_name'"),
        ("raise ValueError('not today')\n", "ValueError", "not today"),
        ("def handler(:\n", "Runtime.UserCodeSyntaxError", "Syntax error in module 'app'"),
        (
            "def other(event, context): pass\n",
            "Runtime.HandlerNotFound",
            "Handler 'handler' missing on module 'app'",
        ),
    ],
    ids=["missing-module", "missing-name", "raising", "syntax", "missing-handler"],
)
async def test_code_that_cannot_be_loaded_is_an_error_each_time(
    lab: Lab, code: str, kind: str, part: str
) -> None:
    host = await lab.start(lab.function(code))
    for _ in range(2):
        found, message = fault(await call(host))
        assert found == kind
        assert part in message
    await check_works_once_repaired(lab, host)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("print('so far')\nraise ValueError('not today')\n", "ValueError"),
        ("def handler(:\n", "Runtime.UserCodeSyntaxError"),
        ("import os\nprint('so far', flush=True)\nos._exit(4)\n", "Runtime.ExitError"),
    ],
    ids=["raising", "syntax", "exit"],
)
async def test_an_error_of_initialisation_is_logged_for_the_request_that_met_it(
    forking: Lab, code: str, kind: str
) -> None:
    host = await forking.start(forking.function(code))
    tail = LogTail()
    result = await host.invoke("fn", b'{"Records": [{"body": "{\\"job_id\\": \\"job-1\\"}"}]}', tail=tail)
    host.flush_logs()
    found = LogFolder(forking.folder / "logs")
    records = Selection(request=result.request_id).choose(found.new())
    found.close()
    assert records[0].message.startswith("START")
    assert records[0].jobs == ("job-1",)
    assert any(kind in record.message for record in records[1:-2])
    assert ("so far" in [record.message for record in records]) is ("so far" in code)
    (end, report) = records[-2:]
    assert end.failure is not None
    assert end.failure.startswith(f"{kind}: ")
    assert report.message.endswith(f"Status: error\tError Type: {kind}\t")
    assert kind.encode() in tail.value()


async def test_a_handler_module_that_is_not_there_is_an_import_error(lab: Lab) -> None:
    host = await lab.start(lab.function(handler="elsewhere.handler"))
    kind, message = fault(await call(host))
    assert kind == "Runtime.ImportModuleError"
    assert "Unable to import module 'elsewhere'" in message


async def test_a_handler_without_a_dot_is_malformed(forking: Lab) -> None:
    host = await forking.start(forking.function(handler="handler"))
    assert fault(await call(host))[0] == "Runtime.MalformedHandlerName"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os\nos._exit(4)\n", "Runtime exited with error: exit status 4"),
        ("import sys\nsys.exit(0)\n", "Runtime exited without providing a reason"),
        ("import ctypes\nctypes.string_at(0)\n", "Runtime exited with error: signal: segmentation fault"),
    ],
    ids=["exit-4", "exit-0", "segfault"],
)
async def test_a_process_that_ends_while_it_loads_is_an_exit_error(lab: Lab, code: str, message: str) -> None:
    host = await lab.start(lab.function(code))
    for _ in range(2):
        assert fault(await call(host)) == ("Runtime.ExitError", message)
    await check_works_once_repaired(lab, host)


async def test_an_endless_initialisation_is_killed_at_the_limit(lab: Lab) -> None:
    note = lab.folder / "pid"
    code = f"import os\nopen({str(note)!r}, 'w').write(str(os.getpid()))\nwhile True:\n    pass\n"
    host = await lab.start(lab.function(code), init_timeout_s=0.5)
    assert fault(await call(host)) == ("Sandbox.Timedout", "Task timed out after 0.50 seconds")
    pid = noted_pid(note)
    assert pid
    await until(lambda: not alive(pid))
    await check_works_once_repaired(lab, host)


async def test_the_time_of_initialisation_is_not_the_invocations(forking: Lab) -> None:
    slow = "import time\nend = time.monotonic() + 0.4\nwhile time.monotonic() < end:\n    pass\n"
    host = await forking.start(forking.function(slow + ECHO, timeout_s=0.3))
    result = await call(host, 1)
    assert result.function_error is None
    assert result.duration_ms < 300
    assert host.stats()["fn"].init_ms_max > 400


async def test_only_the_invocation_that_asked_for_a_process_fails_with_it(forking: Lab) -> None:
    """Each of two concurrent invocations gets the error of its own process."""
    host = await forking.start(forking.function("raise ValueError('no')\n"))
    results = await asyncio.gather(*(call(host) for _ in range(4)))
    assert [fault(result)[0] for result in results] == ["ValueError"] * 4
    assert (host.stats()["fn"].errors, host.stats()["fn"].waiting) == (4, 0)
    await check_works_once_repaired(forking, host)


async def test_a_code_folder_that_is_not_there_is_an_error(lab: Lab) -> None:
    spec = lab.function()
    (spec.code_dir / "app.py").unlink()
    spec.code_dir.rmdir()
    host = await lab.start(spec)
    assert fault(await call(host))[0] == "Runtime.ExitError"
    lab.function()
    await check_works_once_repaired(lab, host)

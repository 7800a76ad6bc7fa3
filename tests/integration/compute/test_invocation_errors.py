"""Results of failed invocations; the next one works."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from local.compute.error_documents import MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES
from local.compute.host import LambdaHost, PayloadTooLarge
from tests.integration.compute.harness import Lab, alive, answer, call, fault, noted_pid, until, value

TROUBLE = """
import ctypes
import os
import signal
import subprocess
import sys
import time

def deeper():
    raise LookupError("no such shelf")

def handler(event, context):
    what = event["do"]
    if what == "raise":
        deeper()
    if what == "leave":
        sys.exit(event["status"])
    if what == "exit":
        os._exit(event["status"])
    if what == "segfault":
        ctypes.string_at(0)
    if what == "signal":
        os.kill(os.getpid(), event["number"])
    if what == "loop":
        while True:
            pass
    if what == "object":
        return object()
    if what == "set":
        return {1, 2}
    if what == "large":
        return "x" * event["size"]
    if what == "memory":
        kept = b"x" * (event["mb"] << 20)
        if event.get("stay"):
            signal.pause()
        return len(kept)
    if what == "many":
        code = f"x = b'x' * ({event['mb']} << 20); print(len(x), flush=True); import time; time.sleep(60)"
        popen = subprocess.Popen
        found = [popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(event["count"])]
        for child in found:
            child.stdout.readline()
        if event.get("stay"):
            signal.pause()
        for child in found:
            child.kill()
            child.wait()
    if what == "fork":
        kept = b"x" * (event["mb"] << 20)
        found = []
        for _ in range(event["count"]):
            pid = os.fork()
            if not pid:
                signal.pause()
            found.append(pid)
        time.sleep(0.5)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return len(kept)
    if what == "children":
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        with open(event["note"], "w") as note:
            note.write(str(child.pid))
        if event["then"] == "loop":
            signal.pause()
        os._exit(3)
    return {"pid": os.getpid(), "length": len(event.get("text", ""))}
"""
EXITED = "Runtime exited with error: "


async def check_works(host: LambdaHost, pid: int | None = None, *, same: bool = False) -> None:
    """Check that the next call works, in the same process or in a new one."""
    found = (await answer(host, {"do": "work"}))["pid"]
    if pid is not None:
        assert (found == pid) is same


async def test_an_exception_is_the_runtimes_error_document_and_keeps_the_process(lab: Lab) -> None:
    host = await lab.start(lab.function(TROUBLE))
    pid = (await answer(host, {"do": "work"}))["pid"]
    result = await call(host, {"do": "raise"})
    assert fault(result) == ("LookupError", "no such shelf")
    document = json.loads(result.payload)
    assert document["requestId"] == result.request_id
    assert [line.split(", in ")[1].split("\n")[0] for line in document["stackTrace"]] == ["handler", "deeper"]
    await check_works(host, pid, same=True)


@pytest.mark.fault("F22")
@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"do": "leave", "status": 0}, "Runtime exited without providing a reason"),
        ({"do": "leave", "status": 7}, EXITED + "exit status 7"),
        ({"do": "exit", "status": 0}, "Runtime exited without providing a reason"),
        ({"do": "exit", "status": 1}, EXITED + "exit status 1"),
        ({"do": "segfault"}, EXITED + "signal: segmentation fault"),
        ({"do": "signal", "number": signal.SIGABRT}, EXITED + "signal: aborted"),
        ({"do": "signal", "number": signal.SIGTERM}, EXITED + "signal: terminated"),
    ],
)
async def test_a_process_that_ends_is_an_exit_error_and_is_replaced(
    lab: Lab, event: dict[str, object], message: str
) -> None:
    host = await lab.start(lab.function(TROUBLE))
    pid = (await answer(host, {"do": "work"}))["pid"]
    assert fault(await call(host, event)) == ("Runtime.ExitError", message)
    await until(lambda: not alive(pid))
    await check_works(host, pid)


async def test_a_process_that_ends_in_its_first_invocation_is_no_failed_initialisation(forking: Lab) -> None:
    host = await forking.start(forking.function(TROUBLE))
    assert fault(await call(host, {"do": "exit", "status": 1})) == (
        "Runtime.ExitError",
        EXITED + "exit status 1",
    )
    assert host.stats()["fn"].cold_starts == 1
    await check_works(host)


async def test_an_endless_loop_is_killed_at_the_limit(lab: Lab) -> None:
    host = await lab.start(lab.function(TROUBLE, timeout_s=1))
    pid = (await answer(host, {"do": "work"}))["pid"]
    result = await call(host, {"do": "loop"})
    assert fault(result) == ("Sandbox.Timedout", "Task timed out after 1.00 seconds")
    assert 990 < result.duration_ms < 2500
    await until(lambda: not alive(pid))
    await check_works(host, pid)


async def test_a_result_that_is_not_json_is_a_marshal_error(forking: Lab) -> None:
    host = await forking.start(forking.function(TROUBLE))
    pid = (await answer(host, {"do": "work"}))["pid"]
    for event in ({"do": "object"}, {"do": "set"}):
        kind, message = fault(await call(host, event))
        assert kind == "Runtime.MarshalError"
        assert "is not JSON serializable" in message
    await check_works(host, pid, same=True)


async def test_a_response_over_the_limit_is_an_error_and_one_at_the_limit_is_not(forking: Lab) -> None:
    host = await forking.start(forking.function(TROUBLE))
    largest = MAX_RESPONSE_BYTES - 2  # the quotes
    assert len(value(await call(host, {"do": "large", "size": largest}))) == largest
    kind, message = fault(await call(host, {"do": "large", "size": largest + 1}))
    assert kind == "Function.ResponseSizeTooLarge"
    assert message == "Response payload size exceeded maximum allowed payload size (6291556 bytes)."
    await check_works(host)


async def test_a_request_over_the_limit_is_refused_and_one_at_the_limit_is_not(forking: Lab) -> None:
    host = await forking.start(forking.function(TROUBLE))
    frame = len(json.dumps({"do": "work", "text": ""}))
    event = {"do": "work", "text": "x" * (MAX_REQUEST_BYTES - frame)}
    assert (await answer(host, event))["length"] == MAX_REQUEST_BYTES - frame
    with pytest.raises(PayloadTooLarge):
        await call(host, {**event, "text": event["text"] + "x"})
    assert host.stats()["fn"].invocations == 1
    await check_works(host)


@pytest.mark.fault("F22")
async def test_too_much_memory_ends_the_process(lab: Lab) -> None:
    host = await lab.start(lab.function(TROUBLE, memory_mb=64))
    pid = (await answer(host, {"do": "work"}))["pid"]
    result = await call(host, {"do": "memory", "mb": 128, "stay": True})
    assert fault(result) == ("Runtime.ExitError", EXITED + "signal: killed")
    report = lab.lines("platform", result.request_id)[-1]
    assert "Memory Size: 64 MB\tMax Memory Used: 64 MB" in report
    await until(lambda: not alive(pid))
    await check_works(host, pid)


async def test_the_memory_of_children_counts(lab: Lab) -> None:
    host = await lab.start(lab.function(TROUBLE, memory_mb=128))
    # Each of these processes is below the limit.
    result = await call(host, {"do": "many", "mb": 60, "count": 3, "stay": True})
    assert fault(result) == ("Runtime.ExitError", EXITED + "signal: killed")
    assert "Memory Size: 128 MB\tMax Memory Used: 128 MB" in lab.lines("platform", result.request_id)[-1]
    await check_works(host)


async def test_memory_that_children_share_counts_once(lab: Lab) -> None:
    host = await lab.start(lab.function(TROUBLE, memory_mb=128))
    assert await answer(host, {"do": "fork", "mb": 60, "count": 3}) == 60 << 20


async def test_memory_may_be_left_unlimited_and_is_reported(forking: Lab) -> None:
    host = await forking.start(forking.function(TROUBLE, memory_mb=64, timeout_s=0.5), enforce_memory=False)
    result = await call(host, {"do": "memory", "mb": 128, "stay": True})
    assert fault(result)[0] == "Sandbox.Timedout"
    await check_works(host)


@pytest.mark.parametrize("then", ["exit", "loop"])
async def test_child_processes_end_with_their_parent(lab: Lab, then: str) -> None:
    host = await lab.start(lab.function(TROUBLE, timeout_s=0.5))
    note = lab.folder / "child.pid"
    running = {"do": "children", "note": str(note), "then": then}
    assert fault(await call(host, running))[0] in ("Runtime.ExitError", "Sandbox.Timedout")
    child = noted_pid(note)
    assert child > 0
    await until(lambda: not alive(child))
    await check_works(host)


async def test_failed_invocations_are_counted(forking: Lab) -> None:
    host = await forking.start(forking.function(TROUBLE))
    for event in ({"do": "raise"}, {"do": "exit", "status": 1}, {"do": "work"}):
        await call(host, event)
    stats = host.stats()["fn"]
    assert (stats.invocations, stats.errors, stats.cold_starts, stats.busy, stats.waiting) == (3, 2, 2, 0, 0)


async def test_an_unknown_function_is_a_key_error(forking: Lab) -> None:
    host = await forking.start(forking.function())
    with pytest.raises(KeyError):
        await call(host, function="other")
    assert (await answer(host, 5, "FnFunction"))["event"] == 5


async def test_what_a_caller_gave_up_does_not_disturb_the_next(forking: Lab) -> None:
    host = await forking.start(forking.function(TROUBLE, timeout_s=0.5))
    given_up = asyncio.ensure_future(call(host, {"do": "loop"}))
    await until(lambda: forking.lines("platform"))
    given_up.cancel()
    await check_works(host)
    await until(lambda: host.stats()["fn"].invocations == 2)
    assert host.stats()["fn"].errors == 1


async def test_an_answer_to_no_open_request_is_refused_and_counts_for_nothing(lab: Lab) -> None:
    """Such a response comes from a process that finishes after its time-out, with the id of a past
    invocation.
    """
    code = """
        import http.client
        import os

        def post(path):
            connection = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
            connection.request("POST", "/2018-06-01/runtime/" + path, "42")
            status = connection.getresponse().status
            connection.close()
            return status

        def handler(event, context):
            old = "invocation/" + event
            return [post(path) for path in (old + "/response", old + "/error", "init/error", "elsewhere")]
    """
    host = await lab.start(lab.function(code))
    first = await call(host, "never-there")
    assert value(first) == [403, 403, 403, 404]
    assert await answer(host, first.request_id) == [403, 403, 403, 404]
    assert (host.stats()["fn"].invocations, host.stats()["fn"].errors) == (2, 0)

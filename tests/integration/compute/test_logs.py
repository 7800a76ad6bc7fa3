"""Lines of a function's log, and their attribution to requests."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from local.compute.invocation import LogTail
from tests.integration.compute.harness import Lab, answer, call, fault

TALK = """
import logging
import os
import signal
import sys
import time

print("while loading")

def handler(event, context):
    if "log" in event:
        logging.getLogger().warning("logged %s", event["log"])
    if "error_line" in event:
        print(event["error_line"], file=sys.stderr)
    if "meet" in event:
        open(os.path.join(event["meet"], event["name"]), "w").close()
        while len(os.listdir(event["meet"])) < event["number"]:
            time.sleep(0.005)
    for number in range(event.get("lines", 0)):
        print(event["name"], number)
    if "size" in event:
        print("x" * event["size"])
    if "unfinished" in event:
        sys.stdout.write(event["unfinished"])
        sys.stdout.flush()
    if "bytes" in event:
        os.write(1, bytes(event["bytes"]))
    if "error" in event:
        raise ValueError(event["error"])
    if "loop" in event:
        print("before the loop", flush=True)
        signal.pause()
    if "exit" in event:
        print("before the exit", flush=True)
        os._exit(1)
    return event.get("name")
"""


def file_records(lab: Lab, host: Any) -> list[dict[str, Any]]:
    host.flush_logs()
    return [json.loads(line) for line in (lab.folder / "logs" / "fn.jsonl").read_text().splitlines()]


async def test_an_invocation_is_framed_by_start_end_and_report(lab: Lab) -> None:
    host = await lab.start(lab.function(TALK, memory_mb=128))
    first = await call(host, {"name": "a", "lines": 2})
    second = await call(host, {"name": "b"})
    own = [record for record in lab.records if record.request_id == first.request_id]
    assert [record.stream for record in own] == ["platform", "stdout", "stdout", "platform", "platform"]
    start, end, report = lab.lines("platform", first.request_id)
    assert start == f"START RequestId: {first.request_id} Version: $LATEST"
    assert end == f"END RequestId: {first.request_id}"
    pattern = (
        rf"REPORT RequestId: {first.request_id}\tDuration: \d+\.\d\d ms\tBilled Duration: \d+ ms\t"
        r"Memory Size: 128 MB\tMax Memory Used: \d+ MB\tInit Duration: \d+\.\d\d ms\t"
    )
    assert re.fullmatch(pattern, report)
    assert "Init Duration" not in lab.lines("platform", second.request_id)[2]


async def test_the_report_says_how_an_invocation_was_ended(forking: Lab) -> None:
    host = await forking.start(forking.function(TALK, timeout_s=0.4))
    timed_out = await call(host, {"loop": True})
    exited = await call(host, {"exit": True})
    raised = await call(host, {"error": "no"})
    reports = [forking.lines("platform", each.request_id)[2] for each in (timed_out, exited, raised)]
    assert "\tDuration: 400.00 ms\tBilled Duration: 400 ms\t" in reports[0]
    assert reports[0].endswith("\tStatus: timeout\t")
    assert reports[1].endswith("\tStatus: error\tError Type: Runtime.ExitError\t")
    assert "Status" not in reports[2]
    assert "before the loop" in forking.lines("stdout", timed_out.request_id)
    assert "before the exit" in forking.lines("stdout", exited.request_id)
    ends = [each for each in file_records(forking, host) if each["message"].startswith("END")]
    assert [each["failure"] for each in ends] == [
        "Sandbox.Timedout: Task timed out after 0.40 seconds",
        "Runtime.ExitError: Runtime exited with error: exit status 1",
        "ValueError: no",
    ]


async def test_lines_printed_while_loading_have_no_request(lab: Lab) -> None:
    host = await lab.start(lab.function(TALK))
    await call(host, {"name": "a"})
    assert "while loading" in lab.lines("stdout", None)


async def test_the_loggers_lines_carry_the_request_id(lab: Lab) -> None:
    host = await lab.start(lab.function(TALK))
    result = await call(host, {"log": "something", "error_line": "and to stderr"})
    (line,) = lab.lines("stdout", result.request_id)
    assert re.fullmatch(rf"\[WARNING\]\t\S+Z\t{result.request_id}\tlogged something", line)
    assert lab.lines("stderr", result.request_id) == ["and to stderr"]


async def test_an_exception_is_logged_as_one_record_with_its_trace(forking: Lab) -> None:
    host = await forking.start(forking.function(TALK))
    result = await call(host, {"error": "no such shelf"})
    assert fault(result) == ("ValueError", "no such shelf")
    (record,) = [line for line in forking.lines("stdout", result.request_id) if "[ERROR]" in line]
    assert "ValueError: no such shelf" in record
    assert "Traceback (most recent call last):\n" in record


async def test_lines_belong_to_the_request_that_printed_them(lab: Lab) -> None:
    host = await lab.start(lab.function(TALK))
    meeting = lab.folder / "meeting"
    meeting.mkdir()
    for round_ in range(3):
        names = [f"n{round_}{number}" for number in range(4)]
        common = {"lines": 200, "meet": str(meeting), "number": 4 * (round_ + 1)}
        results = await asyncio.gather(*(call(host, {"name": name, **common}) for name in names))
        for name, result in zip(names, results, strict=True):
            expected = [f"{name} {number}" for number in range(200)]
            assert lab.lines("stdout", result.request_id) == expected
    assert host.stats()["fn"].cold_starts == 4


async def test_an_unfinished_line_belongs_to_the_request_that_wrote_it(forking: Lab) -> None:
    host = await forking.start(forking.function(TALK))
    results = [await call(host, {"name": "a", "unfinished": f"half {number}"}) for number in range(3)]
    for number, result in enumerate(results):
        assert forking.lines("stdout", result.request_id) == [f"half {number}"]


async def test_a_line_of_three_megabytes_is_logged_whole_in_pieces(forking: Lab) -> None:
    host = await forking.start(forking.function(TALK))
    size = 3 << 20
    result = await call(host, {"name": "a", "size": size})
    assert json.loads(result.payload) == "a"
    pieces = [line for line in forking.lines("stdout", result.request_id) if line.startswith("x")]
    assert sum(map(len, pieces)) == size
    assert max(map(len, pieces)) <= 1 << 20
    assert await answer(host, {"name": "next"}) == "next"


async def test_output_is_no_result_and_bad_bytes_are_replaced(lab: Lab) -> None:
    host = await lab.start(lab.function(TALK))
    reply = b'{"status": "ok"}\nHTTP/1.1 200 OK\r\n\r\n\xff\xfe\x00\n'
    result = await call(host, {"name": "a", "bytes": list(reply)})
    assert json.loads(result.payload) == "a"
    lines = lab.lines("stdout", result.request_id)
    assert lines[:2] == ['{"status": "ok"}', "HTTP/1.1 200 OK"]
    assert lines[-1] == "��\x00"
    assert await answer(host, {"name": "next"}) == "next"


async def test_the_file_holds_what_the_listener_heard(forking: Lab) -> None:
    host = await forking.start(forking.function(TALK))
    result = await call(host, {"name": "ä", "lines": 3})
    found = file_records(forking, host)
    heard = [(each.request_id, each.stream, each.message) for each in forking.records]
    assert [(each["request_id"], each["stream"], each["message"]) for each in found] == heard
    assert {each["function"] for each in found} == {"fn"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found[0]["at"])
    assert [each["message"] for each in found if each["request_id"] == result.request_id][-1].startswith(
        "REPORT"
    )


async def test_the_tail_is_the_last_four_kilobytes_of_one_invocation(forking: Lab) -> None:
    host = await forking.start(forking.function(TALK))
    short, long = LogTail(), LogTail()
    await host.invoke("fn", b'{"name": "first"}', tail=short)
    await host.invoke("fn", b'{"name": "second", "lines": 2000}', tail=long)
    assert short.value().startswith(b"START RequestId: ")
    assert b"second" not in short.value()
    assert len(long.value()) == 4096
    assert b"second 1999\nEND RequestId: " in long.value()
    assert b"first" not in long.value()


async def test_each_function_has_its_own_file(forking: Lab) -> None:
    host = await forking.start(forking.function(TALK, "one"), forking.function(TALK, "two"))
    await asyncio.gather(*(call(host, {"name": name, "lines": 1}, name) for name in ("one", "two")))
    host.flush_logs()
    for name, other in (("one", "two"), ("two", "one")):
        text = (forking.folder / "logs" / f"{name}.jsonl").read_text()
        assert f'"{name} 0"' in text
        assert f'"{other} 0"' not in text

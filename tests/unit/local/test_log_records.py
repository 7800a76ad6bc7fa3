"""Reading, selecting and formatting function logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from local.logbook.records import LogFolder, Record, Report, parse, parse_report
from local.logbook.selection import Selection, trace_root
from local.logbook.show import line

CALLER = "437715e7-55cf-4f02-8e66-fe63906eebbf"
REPORT = (
    "REPORT RequestId: r1\tDuration: 90.57 ms\tBilled Duration: 91 ms\t"
    "Memory Size: 1024 MB\tMax Memory Used: 72 MB"
)


def raw(message: Any, request: str | None = "r1", stream: str = "stdout", **more: Any) -> str:
    text = message if isinstance(message, str) else json.dumps(message)
    known = {"at": "2026-01-31T12:00:00.123Z", "function": "Worker", "request_id": request}
    return json.dumps({**known, "stream": stream, "message": text, **more})


def read(*lines: str) -> list[Record]:
    found = [parse(each) for each in lines]
    return [record for record in found if record is not None]


def test_a_line_that_is_no_record_is_left_out() -> None:
    assert read('{"at": "2026', "[]", "null", '{"at": 1}', raw("kept")) == read(raw("kept"))


def test_a_report_is_read() -> None:
    assert parse_report(REPORT + "\t") == Report(90.57, 72)
    cold = parse_report(REPORT + "\tInit Duration: 332.85 ms\t")
    assert cold == Report(90.57, 72, init_ms=332.85)
    assert parse_report(REPORT + "\tStatus: timeout\t") == Report(90.57, 72, status="timeout")
    ended = parse_report(REPORT + "\tStatus: error\tError Type: Runtime.ExitError\t")
    assert ended == Report(90.57, 72, status="Runtime.ExitError")
    assert parse_report("END RequestId: r1") is None


def test_files_are_merged_by_time_and_read_on(tmp_path: Path) -> None:
    early = raw("early").replace("12:00:00", "11:00:00")
    (tmp_path / "B.jsonl").write_text(early + "\n")
    (tmp_path / "A.jsonl").write_text(raw("late") + "\n")
    logs = LogFolder(tmp_path)
    assert [record.message for record in logs.new()] == ["early", "late"]
    assert logs.new() == []
    with (tmp_path / "A.jsonl").open("a") as file:
        file.write(raw("later") + "\n")
    assert [record.message for record in logs.new()] == ["later"]
    logs.close()
    only = LogFolder(tmp_path, ["B"])
    assert [record.message for record in only.new()] == ["early"]
    only.close()


def test_a_job_is_followed_through_invocations_whose_event_or_lines_name_it() -> None:
    records = read(
        raw("START RequestId: r1", stream="platform", jobs=["job-1", "job-2"]),
        raw("plain"),
        raw({"message": "other", "job_id": "job-2"}),
        raw("START RequestId: r2", "r2", "platform"),
        raw({"message": "said", "job_id": "job-1"}, "r2"),
        raw("START RequestId: r3", "r3", "platform"),
        raw("no request", None),
    )
    chosen = [record.message for record in Selection(job="job-1").choose(records)]
    assert chosen == [record.message for record in (records[0], records[1], records[3], records[4])]


def test_the_beginning_of_an_id_is_enough() -> None:
    records = read(raw({"message": "said", "job_id": "0799c7d5-823d"}))
    assert Selection(job="0799").choose(records) == records
    assert Selection(job="799").choose(records) == []


def test_lines_of_called_functions_are_selected_with_the_callers() -> None:
    root = trace_root(CALLER)
    assert root == "1-437715e7-55cf4f028e66fe63906eebbf"
    called = raw("START RequestId: r9", "r9", "platform", trace=root)
    records = read(called, raw({"message": "said", "job_id": "job-1"}, CALLER))
    assert Selection(job="job-1").choose(records) == records


def test_a_neighbours_call_is_not_the_jobs() -> None:
    root = trace_root(CALLER)
    caller = raw({"message": "said", "job_id": "job-1"}, CALLER)
    both = raw("START RequestId: r8", "r8", "platform", trace=root, jobs=["job-1", "job-2"])
    other = raw("START RequestId: r9", "r9", "platform", trace=root, jobs=["job-2"])
    records = read(caller, both, other, raw("said by it", "r9"))
    assert Selection(job="job-1").choose(records) == records[:2]
    assert Selection(request=CALLER).choose(records) == records


def test_a_request_is_found_by_each_of_its_ids() -> None:
    records = read(raw("START", "r1", "platform", gateway_request_id="g1"), raw("said"), raw("other", "r2"))
    for given in ("r1", "g1"):
        assert Selection(request=given).choose(records) == records[:2]


def test_later_batches_remember_the_invocations() -> None:
    selection = Selection(job="job-1")
    assert selection.choose(read(raw("START", stream="platform", jobs=["job-1"])))
    assert [record.message for record in selection.choose(read(raw("more"), raw("other", "r2")))] == ["more"]


def test_a_structured_line_is_shown_without_what_is_always_there() -> None:
    fields = {"level": "INFO", "location": "f:1", "message": "stage.done", "timestamp": "t", "service": "s"}
    (record,) = read(raw({**fields, "job_id": "job-1", "text": "two words", "count": 3}, failure="E: no"))
    assert record.failure == "E: no"
    assert line(record) == (
        '2026-01-31T12:00:00.123Z Worker r1 INFO stage.done job_id=job-1 text="two words" count=3'
    )


def test_other_lines_are_shown_as_they_are() -> None:
    plain, metric = read(raw("first\nsecond\n"), raw({"_aws": {}, "jobs_failed_total": [1.0]}, None))
    assert line(plain).endswith("Worker r1 first\n    second")
    assert line(metric).endswith("Worker METRIC jobs_failed_total=[1.0]")


def test_a_traceback_is_shown_alike_from_our_logger_and_the_runtime() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\nKeyError: x'
    frames = ['  File "a.py", line 3, in f\n    g()\n']
    of_runtime = {"stackTrace": frames, "errorType": "KeyError", "errorMessage": "x", "requestId": "r1"}
    ours, library, raised = read(
        raw({"level": "ERROR", "message": "failed", "exception": trace, "stack_trace": {"type": "KeyError"}}),
        raw({"level": "ERROR", "message": "failed", "logger": "a.b", **of_runtime}),
        raw({"level": "ERROR", **of_runtime}),
    )
    shown = line(ours)
    assert shown.endswith("ERROR failed\n    " + trace.replace("\n", "\n    "))
    assert line(library) == shown
    assert line(raised) == shown.replace("ERROR failed", "ERROR KeyError: x")

"""Faults as text, names of places, and exactly one process that is hit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from indexmill.embedding.adapters.pgvector.statements import SQL as INDEX_SQL
from indexmill.orchestrator.store.rows import SQL
from local.faults import call_names
from local.faults.activation import control_of, first_rules
from local.faults.control import FaultControl
from local.faults.rules import Rule, WrongRule, matches, parse

SEND = "OrchestratorApi/sqs.SendMessageBatch@ScrapeQueue"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("sqs.SendMessageBatch:error", Rule("sqs.SendMessageBatch", "error")),
        ("Api/s3.PutObject@raw:kill_after#3", Rule("Api/s3.PutObject@raw", "kill_after", 3)),
        ("http.*@page:delay=2.5#2x4~tok3n", Rule("http.*@page", "delay", 2, 4, 2.5, "tok3n")),
        ("sqs.SendMessage*@ScrapeQueue:losex2", Rule("sqs.SendMessage*@ScrapeQueue", "lose", times=2)),
    ],
)
def test_a_rule_is_read_and_written(text: str, rule: Rule) -> None:
    assert parse(text) == rule
    assert parse(rule.text) == rule


@pytest.mark.parametrize(
    "text", ["", "sqs.SendMessageBatch", "x:explode", ":error", "x:delay=soon", "x:error#"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(WrongRule):
        parse(text)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        (SEND, True),
        ("sqs.SendMessageBatch@ScrapeQueue", True),
        ("sqs.SendMessageBatch", True),
        ("OrchestratorApi/sqs.*", True),
        ("Orchestrator*/*@Scrape*", True),
        ("ScraperWorker/sqs.SendMessageBatch", False),
        ("sqs.SendMessageBatch@EmbedQueue", False),
        ("sqs.SendMessage", False),
    ],
)
def test_a_place_is_chosen_by_what_is_named(pattern: str, fits: bool) -> None:
    assert matches(pattern, SEND) is fits


@pytest.mark.parametrize(
    ("service", "operation", "parameters", "place", "write"),
    [
        ("sqs", "SendMessageBatch", {"QueueUrl": "http://h/0/indexmill-EmbedQueue"}, "@EmbedQueue", True),
        ("sqs", "ReceiveMessage", {"QueueUrl": "http://h/0/EmbedQueue"}, "@EmbedQueue", False),
        ("s3", "PutObject", {"Bucket": "b", "Key": "raw/ab/abc"}, "@raw", True),
        ("s3", "GetObject", {"Bucket": "b", "Key": "text/ab/abc"}, "@text", False),
        ("dynamodb", "PutItem", {"TableName": "t", "Item": {"pk": {"S": "robots#x"}}}, "@robots", True),
        ("dynamodb", "GetItem", {"TableName": "t", "Key": {"pk": {"S": "robots#x"}}}, "@robots", False),
        ("lambda", "Invoke", {"FunctionName": "ChunkingApi"}, "@ChunkingApi", True),
        ("lambda", "ListFunctions", {}, "", False),
    ],
)
def test_an_aws_call_is_named_for_what_it_touches(
    service: str, operation: str, parameters: dict[str, object], place: str, write: bool
) -> None:
    assert call_names.aws_call(service, operation, parameters) == (f"{service}.{operation}{place}", write)


@pytest.mark.parametrize(
    ("statement", "place", "write"),
    [
        (SQL["lock_jobs"], "read", False),
        (SQL["job"], "read", False),
        (SQL["forget"], "delete-inbox", True),
        (SQL["save_results"], "update-jobs,insert-job_history-outbox", True),
        (SQL["claim"], "update-outbox", True),
        (INDEX_SQL["claim_documents"], "insert-documents", True),
        (INDEX_SQL["drop_chunks"], "delete-chunks", True),
        (b"COPY vectors FROM STDIN (FORMAT binary)", "copy-vectors", True),
    ],
)
def test_a_statement_is_named_for_what_it_changes(statement: str | bytes, place: str, write: bool) -> None:
    assert call_names.sql_call(statement) == (f"postgres.execute@{place}", write)


def test_http_calls_are_named_for_whom_they_ask() -> None:
    asked = [
        "https://a.example/robots.txt",
        "https://a.example/robots",
        "https://e.example/v1/embeddings?x=1",
    ]
    assert [call_names.http_call("GET", url)[0] for url in asked] == [
        *("http.get@robots", "http.get@page", "http.get@embeddings"),
    ]


@pytest.fixture
def control(tmp_path: Path) -> FaultControl:
    made = FaultControl(tmp_path / "faults")
    made.reset()
    return made


def test_the_third_call_of_all_processes_is_hit_once(control: FaultControl) -> None:
    control.arm([parse("sqs.SendMessageBatch:error#30")])
    program = f"""
import pathlib
from local.faults.control import FaultControl
control = FaultControl(pathlib.Path({str(control.folder)!r}))
print(sum(control.next_fault({SEND!r}) is not None for _ in range(20)))
"""
    workers = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    hits = [int(worker.communicate(timeout=30)[0]) for worker in workers]
    assert sorted(hits) == [0, 0, 0, 1]
    assert len(control.fired()) == 1


def test_rules_change_while_everything_runs(control: FaultControl) -> None:
    other_process = FaultControl(control.folder)
    assert other_process.next_fault(SEND) is None
    control.arm([parse("sqs.SendMessageBatch:error")])
    assert other_process.next_fault(SEND) is not None
    assert other_process.next_fault(SEND) is None
    control.arm([parse("sqs.SendMessageBatch:error")])
    assert other_process.next_fault(SEND) is not None, "armed again, it counts again"
    control.arm()
    assert other_process.next_fault(SEND) is None


def test_only_writes_are_traced_and_only_when_asked(control: FaultControl) -> None:
    control.next_fault(SEND)
    control.arm(trace=True)
    control.next_fault(SEND, request="r1")
    control.next_fault("OrchestratorApi/postgres.execute@read", write=False)
    assert [(call["place"], call["request"]) for call in control.traced()] == [(SEND, "r1")]


def test_only_one_jobs_writes_are_traced_when_asked(control: FaultControl) -> None:
    control.arm(trace=True, only="tok3n")
    task = '{"job_id": "0123456789", "url": "https://a.example/tok3n"}'
    control.invocation_started(json.dumps({"Records": [{"body": task}]}))
    for event in ("of tok3n", '{"job_id": "0123456789"}', "of another", ""):
        control.next_fault(SEND, event=event, request=event)
    assert [call["request"] for call in control.traced()] == ["of tok3n", '{"job_id": "0123456789"}', ""]


def test_a_mark_means_its_own_job_alone(control: FaultControl) -> None:
    control.arm([Rule("sqs.*", "error", times=9, mark="tok3n")])
    task = json.dumps({"job_id": "0123456789", "url": "https://a.example/tok3n"})
    other = json.dumps({"job_id": "9876543210", "url": "https://a.example/other"})
    event = json.dumps({"Records": [{"body": other}, {"body": task}]})
    assert control.next_fault(SEND, event=event) is not None
    assert control.next_fault(SEND, event="of no job") is None
    assert control.next_fault(SEND, event='{"job_id":"0123456789"}') is None, "no message names its job yet"
    control.invocation_started(event)
    late = FaultControl(control.folder)
    assert late.next_fault(SEND, event='{"job_id":"0123456789"}') is not None
    assert late.next_fault(SEND, event='{"job_id":"9876543210"}') is None


def test_of_two_faults_at_one_call_the_first_hits_it_and_both_count_it(
    control: FaultControl,
) -> None:
    control.arm([parse("sqs.*:error"), parse("sqs.*:kill_before"), parse("sqs.*:delay=1#2")])
    kinds = [rule.kind if (rule := control.next_fault(SEND)) else None for _ in range(3)]
    assert kinds == ["error", "delay", None]


def test_chance_spares_most(control: FaultControl) -> None:
    control.arm([Rule("*", "kill_before", times=10**6, share=0.05)])
    hits = sum(control.next_fault(SEND) is not None for _ in range(2000))
    assert 40 < hits < 180


def test_faults_are_off_unless_asked_for(tmp_path: Path) -> None:
    assert control_of(tmp_path, {}) is None
    assert control_of(tmp_path, {"FAULTS": " "}) is None
    assert control_of(tmp_path, {"FAULTS": "on"}) is not None
    assert first_rules({"FAULTS": "on"}) == []
    assert [rule.kind for rule in first_rules({"FAULTS": "a:error; b:delay=1#2"})] == ["error", "delay"]

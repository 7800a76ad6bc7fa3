"""Correlation ids of an invocation's event."""

from __future__ import annotations

import json

from local.cli.samples import SampleContext, sample
from local.compute.event_ids import event_ids


def encoded(event: object) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def record(job_id: str) -> dict[str, str]:
    return {"messageId": "m", "body": json.dumps({"job_id": job_id, "url": "https://a.example/"})}


def test_every_job_in_a_batch_is_named_once() -> None:
    event = {"Records": [record("job-1"), record("job-2"), record("job-1")]}
    assert event_ids(encoded(event), None) == {"jobs": ["job-1", "job-2"]}


def test_compact_and_spaced_bodies_are_read() -> None:
    compact = {"Records": [{"body": '{"job_id":"job-1"}'}]}
    assert event_ids(encoded(compact), None) == {"jobs": ["job-1"]}


def test_looking_at_a_job_is_not_work_for_it() -> None:
    event = {"pathParameters": {"job_id": "job-1"}, "body": None}
    assert event_ids(encoded(event), None) == {}


def test_the_gateways_request_is_known_by_its_own_id() -> None:
    event = sample("api", SampleContext())
    found = event_ids(encoded(event), None)
    assert found == {"gateway_request_id": event["requestContext"]["requestId"]}


def test_a_callers_trace_is_kept() -> None:
    assert event_ids(b"{}", "Root=1-0000aaaa-bbbb;Parent=cc;Sampled=0") == {"trace": "1-0000aaaa-bbbb"}
    assert event_ids(b"{}", "nonsense") == {}


def test_a_direct_call_names_the_jobs_of_its_items() -> None:
    items = [{"text": "a", "job_id": "job-1"}, {"text": "b"}, {"text": "c", "job_id": "job-2"}]
    assert event_ids(encoded({"items": items}), None) == {"jobs": ["job-1", "job-2"]}

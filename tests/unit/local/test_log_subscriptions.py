"""Subscriptions of log groups: which lines invoke the function, and what happens when it fails."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from indexmill.audit.wiring import audit_lines
from local.compute.log_files import LogRecord
from local.template.event_sources import read_subscription
from local.template.intrinsics import TemplateError
from local.template.spec import InvokeResult, SubscriptionSpec, Throttled
from local.triggers import log_subscriptions
from local.triggers.log_subscriptions import LogSubscriptions, matches

SPEC = SubscriptionSpec("AuditApi", "ApiLogs", "Api", "Audit", "service", "audit")
EVENT = json.dumps({"service": "audit", "message": "corpus_searched"})


@dataclass
class Target:
    """A function that keeps the lines of its events, after `outcomes`: an error, or None for throttled."""

    outcomes: list[str | None] = field(default_factory=list)
    lines: list[list[str]] = field(default_factory=list)

    async def invoke(self, function: str, payload: bytes) -> InvokeResult:
        assert function == "Audit"
        if self.outcomes:
            error = self.outcomes.pop(0)
            if error is None:
                raise Throttled
            return InvokeResult(b"", error)
        self.lines.append(audit_lines(json.loads(payload)))
        return InvokeResult(b"null")


def record(message: str = EVENT, function: str = "Api", stream: str = "stdout") -> LogRecord:
    return LogRecord("2026-11-23T10:00:00.123Z", function, "r1", stream, message)


async def deliver(target: Target, *records: LogRecord) -> None:
    subscriptions = LogSubscriptions([SPEC], target, account_id="000000000000")
    for each in records:
        subscriptions.on_log(each)
    await subscriptions.stop()


async def test_lines_that_match_come_in_order_and_no_others() -> None:
    target = Target()
    other = json.dumps({"service": "orchestrator", "message": 'says "audit"'})
    ignored = [
        record(other),
        record(function="Worker"),
        record(stream="platform"),
        record("audit"),
        record("[]"),
    ]
    await deliver(target, record(), *ignored, record(EVENT.replace("searched", "found")))
    assert target.lines == [[EVENT, EVENT.replace("searched", "found")]]


async def test_lines_come_soon_after_they_were_written() -> None:
    target = Target()
    subscriptions = LogSubscriptions([SPEC], target, account_id="000000000000")
    subscriptions.on_log(record())
    async with asyncio.timeout(5):
        while not target.lines:
            await asyncio.sleep(0.01)
    subscriptions.on_log(record())
    await subscriptions.stop()
    assert target.lines == [[EVENT], [EVENT]]


@pytest.mark.parametrize(("outcomes", "arrives"), [(["Unhandled", None], True), (["Unhandled"] * 3, False)])
async def test_a_failed_delivery_is_tried_three_times(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[str | None], arrives: bool
) -> None:
    monkeypatch.setattr(log_subscriptions, "_PAUSE_S", 0.001)
    target = Target(outcomes)
    await deliver(target, record())
    assert target.lines == ([[EVENT]] if arrives else [])


def test_a_text_that_only_mentions_the_service_does_not_match() -> None:
    assert matches(SPEC, EVENT)
    assert not matches(SPEC, json.dumps({"message": EVENT, "service": "front"}))


@pytest.mark.parametrize(
    "change", [{"LogGroupName": "Nobodys"}, {"FilterPattern": ""}, {"FilterPattern": "{ $.a = * }"}]
)
def test_what_is_not_supported_is_refused(change: dict[str, str]) -> None:
    properties = {
        "LogGroupName": "ApiLogs",
        "FilterPattern": '{ $.service = "audit" }',
        "DestinationArn": "arn:aws:lambda:eu-west-1:000000000000:function:Audit:live",
    }
    assert read_subscription("AuditApi", properties, {"ApiLogs": "Api"}) == SPEC
    with pytest.raises(TemplateError):
        read_subscription("AuditApi", properties | change, {"ApiLogs": "Api"})

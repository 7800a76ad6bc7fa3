"""E9007: loops of functions and queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.rules.linting import RESOURCES, SCALING, WORKER, findings

ALLOW = "RecursiveLoop: Allow"
TRUST = "{Version: '2012-10-17', Statement: []}"


def looping(queue: str, extra: str = "", action: str = "sqs:SendMessage") -> str:
    """Return a template whose Worker, fed by Work, may do `action` with `queue`."""
    policy = f"{{Effect: Allow, Action: '{action}', Resource: {queue}}}"
    role = (
        f"  WorkerRole:\n    Type: AWS::IAM::Role\n    Properties:\n      AssumeRolePolicyDocument: {TRUST}\n"
        f"      Policies: [{{PolicyName: own, PolicyDocument: {{Statement: [{policy}]}}}}]\n"
    )
    worker = WORKER.format(extra=f"Role: !GetAtt WorkerRole.Arn\n      {extra}", scaling=SCALING)
    head = "Transform: AWS::Serverless-2016-10-31\nGlobals:\n  Function:\n    Runtime: python3.13\n"
    return head + RESOURCES + worker + role


@pytest.mark.parametrize(
    ("queue", "action"),
    [
        ("!GetAtt Work.Arn", "sqs:SendMessage"),
        ("!Sub '${Work.Arn}'", "sqs:SendMessage"),
        ("[!GetAtt Dead.Arn, !GetAtt Work.Arn]", "sqs:SendMessage"),
        ("!GetAtt Worker.Arn", "lambda:InvokeFunction"),
    ],
)
def test_a_loop_is_found_unless_it_is_intended(tmp_path: Path, queue: str, action: str) -> None:
    assert [rule for rule, _ in findings(tmp_path, looping(queue, action=action))] == ["E9007"]
    assert findings(tmp_path, looping(queue, ALLOW, action=action)) == []


def test_a_loop_through_a_dead_letter_queue_is_found(tmp_path: Path) -> None:
    again = WORKER.format(extra="Role: !GetAtt WorkerRole.Arn", scaling=SCALING)
    again = (
        again.replace("  Worker:", "  Again:")
        .replace("Work.Arn", "Dead.Arn")
        .replace("!Ref WorkTimeout", "9")
    )
    # Worker may not send to Work; Again, fed by its dead letters, may.
    template = looping("!GetAtt Work.Arn").replace(
        "      Role: !GetAtt WorkerRole.Arn\n", "      MemorySize: 128\n"
    )
    assert [rule for rule, _ in findings(tmp_path, template)] == []
    assert {rule for rule, _ in findings(tmp_path, template + again)} >= {"E9007"}


def test_a_function_in_no_loop_may_not_hide_one(tmp_path: Path) -> None:
    assert [rule for rule, _ in findings(tmp_path, looping("!GetAtt Dead.Arn", ALLOW))] == ["E9007"]
    assert findings(tmp_path, looping("!GetAtt Dead.Arn")) == []

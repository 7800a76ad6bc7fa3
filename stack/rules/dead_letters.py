"""E9002: every work queue has a dead-letter queue with enough retention for an operator to react."""

from __future__ import annotations

from typing import Any

from cfnlint.rules import CloudFormationLintRule, RuleMatch
from cfnlint.template import Template

from stack.rules._source import Path, Source, number, target

RETENTION = 14 * 24 * 3600  # seconds: the longest that SQS keeps a message
SQS_RETENTION = 4 * 24 * 3600  # where the queue says nothing


class DeadLetters(CloudFormationLintRule):
    """Every work queue has a dead-letter queue in the template, and both keep messages for 14 days."""

    id = "E9002"
    shortdesc = "Queues have dead-letter queues and keep messages for 14 days"
    description = "A dead-letter queue itself needs none"
    tags = ["sqs"]  # noqa: RUF012

    def match(self, cfn: Template) -> list[RuleMatch]:
        """Return the queues that lose messages."""
        source = Source(cfn.filename)
        queues = source.resources("AWS::SQS::Queue")
        dead = {target(_redrive(body).get("deadLetterTargetArn")) for body in queues.values()}
        found = []
        for name, body in queues.items():
            path: Path = ["Resources", name, "Properties"]
            if name not in dead:
                policy = _redrive(body)
                if target(policy.get("deadLetterTargetArn")) not in queues or "maxReceiveCount" not in policy:
                    found.append(
                        source.match(path, f"{name} needs a RedrivePolicy to a queue of this template")
                    )
            for given, parameters in source.parameter_sets().items():
                kept = number(body.get("MessageRetentionPeriod"), parameters, SQS_RETENTION)
                if kept != RETENTION:
                    found.append(
                        source.match(path, f"{name} keeps messages {kept} s with {given}, not {RETENTION} s")
                    )
        return found


def _redrive(body: dict[str, Any]) -> dict[str, Any]:
    policy = body.get("RedrivePolicy")
    return policy if isinstance(policy, dict) else {}

"""E9001: a message must not come back while it is still being worked on."""

from __future__ import annotations

from cfnlint.rules import CloudFormationLintRule, RuleMatch
from cfnlint.template import Template

from stack.rules._source import LAMBDA_TIMEOUT, Path, Source, number

TIMES = 6
SQS_VISIBILITY = 30  # seconds, where the queue says nothing


class QueueVisibility(CloudFormationLintRule):
    """A queue hides a message for six times the time-out of its function, and the batching window."""

    id = "E9001"
    shortdesc = "Visibility is at least six times the function's time-out, and the batching window"
    description = "With the defaults and with every parameter set of samconfig.toml"
    tags = ["sqs"]  # noqa: RUF012 - as cfn-lint declares it

    def match(self, cfn: Template) -> list[RuleMatch]:
        """Return the queues that give a message back too early."""
        source = Source(cfn.filename)
        queues = source.resources("AWS::SQS::Queue")
        found = []
        for event in source.sqs_sources():
            if event.queue not in queues:
                continue
            for name, parameters in source.parameter_sets().items():
                timeout = number(
                    source.function_property(event.function, "Timeout"), parameters, LAMBDA_TIMEOUT
                )
                hidden = number(queues[event.queue].get("VisibilityTimeout"), parameters, SQS_VISIBILITY)
                window = number(event.properties.get("MaximumBatchingWindowInSeconds"), parameters, 0)
                path: Path = ["Resources", event.queue, "Properties"]
                if timeout is None or hidden is None or window is None:
                    found.append(source.match(path, f"{event.queue}: with {name} a time is not a number"))
                elif hidden < TIMES * timeout + window:
                    least = f"{TIMES} x {timeout} s of {event.function} and its window of {window} s"
                    message = f"{event.queue} hides messages for {hidden} s with {name}: less than {least}"
                    found.append(source.match(path, message))
        return found

"""E9003: a queue neither takes the whole account's concurrency nor burns receives on a full function."""

from __future__ import annotations

from collections import defaultdict

from cfnlint.rules import CloudFormationLintRule, RuleMatch
from cfnlint.template import Template

from stack.rules._source import Source, SqsSource, number

LEAST = 2  # AWS accepts no less


class MaximumConcurrency(CloudFormationLintRule):
    """Every SQS source has a MaximumConcurrency, and a function's sources fit its reserved concurrency."""

    id = "E9003"
    shortdesc = "SQS sources have a MaximumConcurrency that fits"
    description = "At least 2 each; their sum is within ReservedConcurrentExecutions where that is set"
    tags = ["sqs", "lambda"]  # noqa: RUF012

    def match(self, cfn: Template) -> list[RuleMatch]:
        """Return the sources without a bound and the functions that their sources overrun."""
        source = Source(cfn.filename)
        by_function: dict[str, list[SqsSource]] = defaultdict(list)
        for event in source.sqs_sources():
            by_function[event.function].append(event)
        found = []
        for name, parameters in source.parameter_sets().items():
            for function, events in by_function.items():
                found += _check(source, function, events, name, parameters)
        return found


def _check(
    source: Source, function: str, events: list[SqsSource], name: str, parameters: dict[str, str]
) -> list[RuleMatch]:
    found, together = [], 0
    for event in events:
        most = number(event.properties.get("ScalingConfig", {}).get("MaximumConcurrency"), parameters)
        together += most or 0
        if most is None or most < LEAST:
            message = (
                f"{function} needs a MaximumConcurrency of {LEAST} or more for {event.queue} (with {name})"
            )
            found.append(source.match(event.path, message))
    given = source.function_property(function, "ReservedConcurrentExecutions")
    reserved = number(source.chosen(given, parameters), parameters)
    if reserved is not None and together > reserved:
        message = (
            f"{function}: its sources take up to {together} at once, {reserved} are reserved (with {name})"
        )
        found.append(source.match(["Resources", function, "Properties"], message))
    return found

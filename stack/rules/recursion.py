"""E9007: a loop of functions and queues is intended, or it is none."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from cfnlint.rules import CloudFormationLintRule, RuleMatch
from cfnlint.template import Template

from stack.rules._source import Path, Source, target
from stack.rules.permissions import listed, search

Edges = dict[str, set[str]]
_STARTS = {"sqs:SendMessage", "lambda:InvokeFunction", "lambda:InvokeAsync"}


class RecursiveLoops(CloudFormationLintRule):
    """Every function that may start itself again allows it, and no other function does."""

    id = "E9007"
    shortdesc = "Functions in a loop have RecursiveLoop: Allow, others have not"
    description = (
        "Lambda ends a chain that comes back to a function about sixteen times, and drops its events"
    )
    tags = ["lambda", "sqs"]  # noqa: RUF012

    def match(self, cfn: Template) -> list[RuleMatch]:
        """Return the functions whose RecursiveLoop does not fit the template's loops."""
        source = Source(cfn.filename)
        edges = _edges(source)
        found = []
        for name in source.resources("AWS::Serverless::Function"):
            allowed = source.function_property(name, "RecursiveLoop") == "Allow"
            loops = name in _reached(edges, name)
            path: Path = ["Resources", name, "Properties"]
            if loops and not allowed:
                found.append(
                    source.match(path, f"{name} is in a loop, which Lambda stops: RecursiveLoop: Allow")
                )
            elif allowed and not loops:
                found.append(
                    source.match(path, f"{name} is in no loop: RecursiveLoop hides one that is a defect")
                )
        return found


def _edges(source: Source) -> Edges:
    """Return what may start what: functions, queues and dead-letter queues by logical id."""
    edges: Edges = defaultdict(set)
    for name in source.resources("AWS::Serverless::Function"):
        role = source.resources("AWS::IAM::Role").get(
            target(source.function_property(name, "Role")) or "", {}
        )
        own = source.function_property(name, "Policies")
        for _, statement in [*search(role, []), *search(own, [])]:
            if _STARTS & set(map(str, listed(statement.get("Action")))):
                edges[name].update(filter(None, map(_named, listed(statement.get("Resource")))))
    for event in source.sqs_sources():
        edges[str(event.queue)].add(event.function)
    for name, queue in source.resources("AWS::SQS::Queue").items():
        dead = target((queue.get("RedrivePolicy") or {}).get("deadLetterTargetArn"))
        if dead:
            edges[name].add(dead)
    return edges


def _named(resource: Any) -> str | None:
    """Return the logical id in a statement's resource."""
    text = resource.get("Fn::Sub") if isinstance(resource, dict) else None
    if isinstance(text, str):
        return text.partition("${")[2].partition("}")[0].removesuffix(".Arn")
    return target(resource)


def _reached(edges: Edges, start: str) -> set[str]:
    """Return everything that `start` may start, over any number of steps."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found

"""Each role lets its function do what its code does: no cloud on a laptop asks for a permission."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, Final

import pytest

from tests.support.function_env import functions, template, variables

_CONSUME: Final = {
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueAttributes",
}
_SEND: Final = {"sqs:SendMessage"}
_COUNT: Final = {"sqs:GetQueueAttributes"}
_SWITCH: Final = {"lambda:GetEventSourceMapping", "lambda:UpdateEventSourceMapping"}
_NOTES: Final = {"dynamodb:BatchGetItem", "dynamodb:BatchWriteItem"}
_WRITE: Final = {"s3:PutObject"}
_READ: Final = {"s3:GetObject"}
# A function that reads an object must learn that it is gone; without ListBucket S3 calls it forbidden.
_LIST: Final = {"s3:ListBucket"}
Permissions = dict[str, set[str]]
# What the adapters call that its wiring builds, by resource, beside the function's own log and its secrets.
USED: Final[dict[str, Permissions]] = {
    "Authorizer": {},
    "StreamAuthorizer": {},
    "OrchestratorApi": {
        "ScrapeQueue": _SEND,
        "ChunkQueue": _SEND,
        "EmbedQueue": _SEND,
        "StateTable": {"dynamodb:GetItem"},
    },
    "OrchestratorStream": {"StateTable": {"dynamodb:GetItem", "dynamodb:UpdateItem"}},
    "OrchestratorResults": {
        "CallbacksQueue": _CONSUME,
        "CallbacksDlq": _SEND,
        "ScrapeQueue": _SEND,
        "ChunkQueue": _SEND,
        "EmbedQueue": _SEND,
    },
    "OrchestratorSweeper": {
        "ScrapeQueue": _SEND | _COUNT,
        "ChunkQueue": _SEND | _COUNT,
        "EmbedQueue": _SEND | _COUNT,
        "CallbacksQueue": _COUNT,
        "ScrapeDlq": _COUNT,
        "ChunkDlq": _COUNT,
        "EmbedDlq": _COUNT,
        "CallbacksDlq": _COUNT,
        "ScraperWorkerTasks": _SWITCH,
        "ChunkingWorkerTasks": _SWITCH,
        "EmbeddingWorkerTasks": _SWITCH,
        "StateTable": {"dynamodb:BatchGetItem"},
    },
    "OrchestratorDeadLetters": {
        "ScrapeDlq": _CONSUME,
        "ChunkDlq": _CONSUME,
        "EmbedDlq": _CONSUME,
        "CallbacksDlq": _CONSUME,
        "ScrapeQueue": _SEND,
        "ChunkQueue": _SEND,
        "EmbedQueue": _SEND,
        "ContentBucket/dead-letters/*": _WRITE,
    },
    "ScraperApi": {
        "ScrapeQueue": _SEND,
        "ContentBucket/*": _WRITE,
        "StateTable": {"dynamodb:GetItem", "dynamodb:PutItem"},
    },
    "ScraperWorker": {
        "ScrapeQueue": _CONSUME,
        "ScrapeDlq": _SEND,
        "CallbacksQueue": _SEND,
        "ContentBucket": _LIST,
        "ContentBucket/*": _WRITE,
        # The raw content of a job that is replayed.
        "ContentBucket/raw/*": _READ,
        "StateTable": {*_NOTES, "dynamodb:GetItem", "dynamodb:PutItem"},
    },
    "ChunkingApi": {"ChunkQueue": _SEND, "ContentBucket/text/*": _WRITE},
    "ChunkingWorker": {
        "ChunkQueue": _CONSUME,
        "ChunkDlq": _SEND,
        "CallbacksQueue": _SEND,
        "ContentBucket": _LIST,
        "ContentBucket/text/*": _READ,
        "ContentBucket/chunks/*": _WRITE,
        "StateTable": _NOTES,
    },
    "EmbeddingWriteApi": {"EmbedQueue": _SEND, "ContentBucket/*": _WRITE},
    "EmbeddingReadApi": {},
    "EmbeddingWorker": {
        "EmbedQueue": _CONSUME,
        "EmbedDlq": _SEND,
        "CallbacksQueue": _SEND,
        "ContentBucket": _LIST,
        "ContentBucket/*": _READ,
        "ContentBucket/progress/*": _WRITE,
        "StateTable": {*_NOTES, "dynamodb:PutItem"},
    },
    "Migrator": {},
}
_NETWORK: Final = {
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
}


def listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def named(value: Any) -> str:
    """Return the resources that an ARN is made of, with a path below: `ContentBucket/raw/*`."""
    if not isinstance(value, dict):
        return str(value)
    ((how, what),) = value.items()
    if how == "Fn::If" and what[2] == {"Ref": "AWS::NoValue"}:
        return named(what[1])
    if how == "Fn::GetAtt":
        return str(what[0])
    if how == "Fn::Sub":
        last = str(what).rpartition(":")[2]
        return re.sub(r"\$\{(\w+)(?:\.Arn)?\}", r"\1", last)
    return str(what) if how == "Ref" else str(value)


def permissions(logical_id: str, *services: str) -> Permissions:
    """Return the actions of these services that the function's role allows, by resource."""
    policies = template()["Resources"][f"{logical_id}Role"]["Properties"]["Policies"]
    statements = [
        each["Fn::If"][1] if "Fn::If" in each else each
        for policy in policies
        for each in policy["PolicyDocument"]["Statement"]
    ]
    found: Permissions = defaultdict(set)
    for statement in statements:
        assert statement["Effect"] == "Allow"
        actions = {each for each in listed(statement["Action"]) if each.partition(":")[0] in services}
        for resource in listed(statement["Resource"]) if actions else ():
            found[named(resource)] |= actions
    return dict(found)


@pytest.mark.shows("S16")
@pytest.mark.parametrize("logical_id", functions())
def test_a_role_allows_what_the_function_does_and_nothing_else(logical_id: str) -> None:
    policies = str(template()["Resources"][f"{logical_id}Role"]["Properties"])
    services = set(re.findall(r"'(\w+):\w+'", policies)) - {"sts", "logs", "secretsmanager", "ec2"}
    assert permissions(logical_id, *services) == USED[logical_id]


@pytest.mark.shows("S11")
@pytest.mark.parametrize("logical_id", functions())
def test_a_role_writes_the_functions_own_log_and_reads_its_own_secrets(logical_id: str) -> None:
    own = {f"{logical_id}Logs": {"logs:CreateLogStream", "logs:PutLogEvents"}}
    assert permissions(logical_id, "logs") == own
    secrets = [value for name, value in variables(logical_id).items() if name.endswith("_SECRET_ARN")]
    read = {named(each): {"secretsmanager:GetSecretValue"} for each in secrets}
    assert permissions(logical_id, "secretsmanager") == read


@pytest.mark.parametrize("logical_id", functions())
def test_a_function_in_a_network_may_have_its_interfaces_made(logical_id: str) -> None:
    """All that Lambda asks of an execution role there; a function outside needs nothing of it."""
    needed = {"*": _NETWORK} if "VpcConfig" in functions()[logical_id] else {}
    assert permissions(logical_id, "ec2") == needed

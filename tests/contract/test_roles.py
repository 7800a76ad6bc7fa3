"""Each role lets its function do what its code does: no cloud on a laptop asks for a permission."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.function_env import functions, template

_CONSUMES = {
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueAttributes",
}
_NOTES = {"dynamodb:BatchGetItem", "dynamodb:BatchWriteItem"}
# Whoever reads an object must learn that it is gone; without ListBucket S3 calls it forbidden.
_READS = {"s3:GetObject", "s3:ListBucket"}
_CALLS = {"sqs:SendMessage", "lambda:InvokeFunction"}
# What the adapters call that its wiring builds, beside the function's own log and its secrets.
USED = {
    "Authorizer": set(),
    "StreamAuthorizer": set(),
    "OrchestratorApi": {*_CALLS, "dynamodb:GetItem"},
    "OrchestratorStream": {"dynamodb:GetItem", "dynamodb:UpdateItem"},
    "OrchestratorResults": {*_CALLS, *_CONSUMES},
    "OrchestratorSweeper": {
        *_CALLS,
        "sqs:GetQueueAttributes",
        "dynamodb:BatchGetItem",
        "lambda:GetEventSourceMapping",
        "lambda:UpdateEventSourceMapping",
    },
    "OrchestratorDeadLetters": {*_CALLS, *_CONSUMES, "s3:PutObject"},
    "ScraperApi": {"sqs:SendMessage", "s3:PutObject", "dynamodb:GetItem", "dynamodb:PutItem"},
    # It reads the raw content of a job that is replayed.
    "ScraperWorker": {
        *_CONSUMES,
        *_NOTES,
        *_READS,
        "sqs:SendMessage",
        "s3:PutObject",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
    },
    "ChunkingApi": {*_READS, "s3:PutObject"},
    "EmbeddingWriteApi": {"sqs:SendMessage", "s3:PutObject"},
    "EmbeddingReadApi": set(),
    "EmbeddingWorker": {
        *_CONSUMES,
        *_NOTES,
        *_READS,
        "sqs:SendMessage",
        "s3:PutObject",
        "dynamodb:PutItem",
    },
    "Migrator": set(),
}


def statements(logical_id: str) -> list[dict[str, Any]]:
    """Return what the function's role allows, wherever a condition hides it."""
    policy = template()["Resources"][f"{logical_id}Role"]["Properties"]["Policies"][0]["PolicyDocument"]
    return [each["Fn::If"][1] if "Fn::If" in each else each for each in policy["Statement"]]


def actions(logical_id: str) -> set[str]:
    """Return the actions that the function's role allows."""
    named = [each["Action"] for each in statements(logical_id)]
    return {action for each in named for action in ([each] if isinstance(each, str) else each)}


@pytest.mark.parametrize("logical_id", functions())
def test_a_role_allows_what_the_function_does_and_nothing_else(logical_id: str) -> None:
    shared = {"logs", "secretsmanager", "ec2"}
    assert {each for each in actions(logical_id) if each.partition(":")[0] not in shared} == USED[logical_id]


@pytest.mark.parametrize("logical_id", [name for name, found in functions().items() if "VpcConfig" in found])
def test_a_function_in_a_network_may_have_its_interfaces_made(logical_id: str) -> None:
    """All that Lambda asks of an execution role there."""
    assert actions(logical_id) >= {
        "ec2:CreateNetworkInterface",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSubnets",
        "ec2:DeleteNetworkInterface",
        "ec2:AssignPrivateIpAddresses",
        "ec2:UnassignPrivateIpAddresses",
    }

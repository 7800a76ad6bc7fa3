"""Each role lets its function do what its code does: no cloud on a laptop asks for a permission."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.function_env import functions, template, variables
from tests.support.roles import Permissions, named, permissions
from tests.support.used_permissions import NOT_COMPARED, SERVICES, differences

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
_DOOR: Final[Permissions] = {
    "StateTable/door": {"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:UpdateItem"},
    "StateTable/active": {"dynamodb:BatchGetItem", "dynamodb:UpdateItem"},
}
"""Of each function that answers callers: their limits, and which are active."""
_BREAKERS: Final[Permissions] = {"StateTable/breaker": {"dynamodb:BatchGetItem", "dynamodb:PutItem"}}
_AGES: Final[Permissions] = {"StateTable/queue": {"dynamodb:GetItem"}}
_NOTE_AGES: Final[Permissions] = {"StateTable/queue": {"dynamodb:PutItem"}}
_ITEM: Final = {"dynamodb:GetItem", "dynamodb:PutItem"}
_WRITE: Final = {"s3:PutObject"}
_READ: Final = {"s3:GetObject"}
# A function that reads an object must learn that it is gone; without ListBucket S3 calls it forbidden.
_LIST: Final = {"s3:ListBucket"}
# What the adapters call that its wiring builds, by resource, beside the function's own log and its secrets.
USED: Final[dict[str, Permissions]] = {
    "Authorizer": {"StateTable/caller": {"dynamodb:BatchGetItem"}},
    "StreamAuthorizer": {"StateTable/caller": {"dynamodb:BatchGetItem"}},
    "OrchestratorApi": {
        "ScrapeQueue": _SEND,
        "ChunkQueue": _SEND,
        "EmbedQueue": _SEND,
        "StateTable/progress": {"dynamodb:GetItem"},
        "StateTable/canceled": {"dynamodb:BatchWriteItem"},
        # The Scraper's API, by the name of its alias.
        "ScraperApi.Alias": {"lambda:InvokeFunction"},
        "ContentBucket": _LIST,
        "ContentBucket/raw/*": _WRITE,
        # S3 takes what callers upload if the role that signed their URLs may write it.
        "ContentBucket/uploads/*": _WRITE | _READ,
        **_DOOR,
    },
    "OrchestratorStream": {
        "StateTable/stream-windows": {"dynamodb:GetItem", "dynamodb:UpdateItem"},
        "StateTable/progress": {"dynamodb:GetItem"},
        **_DOOR,
    },
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
        "IndexBuilder.Alias": {"lambda:InvokeFunction"},
        "StateTable/breaker": {"dynamodb:BatchGetItem"},
        "StateTable/mirror": {"dynamodb:GetItem", "dynamodb:UpdateItem"},
        "StateTable/caller": {"dynamodb:UpdateItem"},
        "StateTable/door": {"dynamodb:UpdateItem"},
        # Of deletions.
        "StateTable/progress": {"dynamodb:GetItem", "dynamodb:DeleteItem"},
        "ContentBucket": _LIST,
        **dict.fromkeys(
            (f"ContentBucket/{prefix}/*" for prefix in ("uploads", "dead-letters", "progress")),
            _READ | {"s3:DeleteObject"},
        ),
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
        "ScrapeQueue": _SEND | _COUNT,
        "ContentBucket/raw/*": _WRITE,
        "ContentBucket/text/*": _WRITE,
        "StateTable/robots": _ITEM,
        "StateTable/host": {"dynamodb:PutItem"},
        **_DOOR,
        **_AGES,
    },
    "ScraperWorker": {
        "ScrapeQueue": _CONSUME,
        "ScrapeDlq": _SEND,
        "CallbacksQueue": _SEND,
        "ContentBucket": _LIST,
        # The raw content of a job that is replayed is read.
        "ContentBucket/raw/*": _WRITE | _READ,
        "ContentBucket/uploads/*": _READ,
        "ContentBucket/text/*": _WRITE,
        "StateTable/robots": _ITEM,
        "StateTable/host": {"dynamodb:PutItem"},
        "StateTable/canceled": {"dynamodb:BatchGetItem"},
        "StateTable/release": _NOTES,
        **_NOTE_AGES,
    },
    "ChunkingApi": {"ChunkQueue": _SEND | _COUNT, "ContentBucket/text/*": _WRITE, **_DOOR, **_AGES},
    "ChunkingWorker": {
        "ChunkQueue": _CONSUME,
        "ChunkDlq": _SEND,
        "CallbacksQueue": _SEND,
        "ContentBucket": _LIST,
        "ContentBucket/text/*": _READ,
        "ContentBucket/chunks/*": _WRITE,
        "StateTable/release": _NOTES,
        **_NOTE_AGES,
    },
    "EmbeddingWriteApi": {
        "EmbedQueue": _SEND | _COUNT,
        "ContentBucket/chunks/*": _WRITE,
        **_DOOR,
        **_AGES,
        **_BREAKERS,
    },
    "EmbeddingReadApi": {**_DOOR, **_BREAKERS},
    "EmbeddingWorker": {
        "EmbedQueue": _CONSUME,
        "EmbedDlq": _SEND,
        "CallbacksQueue": _SEND,
        "ContentBucket": _LIST,
        "ContentBucket/chunks/*": _READ,
        "ContentBucket/progress/*": _READ | _WRITE,
        "StateTable/release": _NOTES,
        **_BREAKERS,
        "StateTable/progress": {"dynamodb:PutItem"},
        **_NOTE_AGES,
    },
    "Audit": {},
    "Migrator": {},
    "IndexBuilder": {},
}
_NETWORK: Final = {
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
}


@pytest.mark.shows("S10", "S11", "S16")
@pytest.mark.parametrize("logical_id", functions())
def test_a_role_allows_what_the_function_does_and_nothing_else(logical_id: str) -> None:
    policies = str(template()["Resources"][f"{logical_id}Role"]["Properties"])
    services = set(re.findall(r"'(\w+):\w+'", policies)) - {"sts", "logs", "secretsmanager", "kms", "ec2"}
    assert permissions(logical_id, *services) == USED[logical_id]


def record(folder: Path, *calls: tuple[str, str], function: str = "ScraperWorker") -> None:
    """Write calls as the functions of a test's cloud do."""
    made = [{"function": function, "action": action, "resource": resource} for action, resource in calls]
    (folder / "calls.jsonl").write_text("\n".join(map(json.dumps, made)), encoding="utf-8")


@pytest.mark.shows("S10", "S11")
def test_a_call_on_another_prefix_or_another_kind_of_item_is_not_allowed(tmp_path: Path) -> None:
    calls = [
        ("s3:PutObject", "ContentBucket/raw"),
        ("s3:PutObject", "ContentBucket/chunks"),
        ("dynamodb:PutItem", "StateTable/robots"),
        ("dynamodb:PutItem", "StateTable/breaker"),
    ]
    record(tmp_path, *calls)
    refused = [each for each in differences(tmp_path) if "does not allow" in each]
    assert refused == [
        f"ScraperWorker calls {action} on {on}, which its role does not allow"
        for action, on in (calls[3], calls[1])
    ]


def test_a_secret_that_a_function_reads_is_one_of_its_role_and_each_of_its_role_is_read(
    tmp_path: Path,
) -> None:
    action, keys = "secretsmanager:GetSecretValue", "STREAM_TOKEN_KEY_SECRET_ARN"

    def lines() -> list[str]:
        found = [each for each in differences(tmp_path) if each.startswith("StreamAuthorizer ")]
        return [each for each in found if action in each]

    record(tmp_path, (action, keys), function="StreamAuthorizer")
    assert lines() == []
    record(tmp_path, (action, "DATABASE_URL_SECRET_ARN"), function="StreamAuthorizer")
    assert lines() == [
        f"StreamAuthorizer calls {action} on DATABASE_URL_SECRET_ARN, which its role does not allow",
        f"StreamAuthorizer may {action} on StreamTokenKey, which nothing used",
    ]


def test_a_permission_that_is_listed_as_unused_must_be_one_and_unused(tmp_path: Path) -> None:
    used, unused = ("s3:PutObject", "ContentBucket/raw/*"), ("s3:PutObject", "ContentBucket/text/*")
    gone = ("s3:PutObject", "ContentBucket/nothing/*")
    record(tmp_path, ("s3:PutObject", "ContentBucket/raw"))
    listed = {("ScraperWorker", *each) for each in (used, unused, gone)}
    found = differences(tmp_path, listed)
    assert [each for each in found if "listed" in each] == [
        f"ScraperWorker may {action} on {on} is listed as unused, and was used or is not in its role"
        for action, on in (gone, used)
    ]
    assert not [
        each for each in found if each.startswith("ScraperWorker may s3:PutObject on ContentBucket/text/*")
    ]


@pytest.mark.parametrize("logical_id", functions())
def test_each_service_of_a_role_is_compared_or_has_a_reason(logical_id: str) -> None:
    policies = template()["Resources"][f"{logical_id}Role"]["Properties"]["Policies"]
    services = set(re.findall(r"'([a-z0-9]+):\w+'", str(policies)))
    assert services <= {*SERVICES, *NOT_COMPARED}


@pytest.mark.shows("S11")
@pytest.mark.parametrize("logical_id", functions())
def test_a_role_writes_the_functions_own_log_and_reads_its_own_secrets(logical_id: str) -> None:
    own = {f"{logical_id}Logs": {"logs:CreateLogStream", "logs:PutLogEvents"}}
    assert permissions(logical_id, "logs") == own
    secrets = [value for name, value in variables(logical_id).items() if name.endswith("_SECRET_ARN")]
    read = {named(each): {"secretsmanager:GetSecretValue"} for each in secrets}
    assert permissions(logical_id, "secretsmanager") == read


@pytest.mark.parametrize("logical_id", functions())
def test_a_role_that_reads_secrets_decrypts_with_their_key_and_no_other_does(logical_id: str) -> None:
    # The key that the stack makes for stream tokens is encrypted with aws/secretsmanager.
    reads = set(permissions(logical_id, "secretsmanager")) - {"StreamTokenKey"}
    signs = (
        {"SigningKey": {"kms:Sign", "kms:GetPublicKey"}} if "SIGNING_KEY_ID" in variables(logical_id) else {}
    )
    assert permissions(logical_id, "kms") == ({"KmsKeyArn": {"kms:Decrypt"}} if reads else {}) | signs


@pytest.mark.parametrize("name", [each for each in template()["Parameters"] if each.endswith("SecretArn")])
def test_a_role_needs_the_whole_arn_of_a_secret(name: str) -> None:
    """A part of an ARN is taken by Secrets Manager and denied by the role."""
    rules = template()["Parameters"][name]
    whole = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:team/database-AbC123"
    assert re.fullmatch(rules["AllowedPattern"], rules.get("Default", whole))
    assert re.fullmatch(rules["AllowedPattern"], whole)
    for partial in (whole[:-7], "team/database", "team/database-AbC123", whole + "*"):
        assert not re.fullmatch(rules["AllowedPattern"], partial)


@pytest.mark.shows("S10")
@pytest.mark.parametrize("logical_id", functions())
def test_a_role_lists_only_what_it_reads(logical_id: str) -> None:
    """S3 asks for the permission when an object is gone, and then without a prefix: hence IfExists."""
    text = template()["Resources"][f"{logical_id}Role"]["Properties"]["Policies"]
    statements = [each for policy in text for each in policy["PolicyDocument"]["Statement"]]
    listing = [each["Condition"] for each in statements if "s3:ListBucket" in each.get("Action", ())]
    read = [name for name, actions in permissions(logical_id, "s3").items() if "s3:GetObject" in actions]
    prefixes = sorted(name.removeprefix("ContentBucket/") for name in read)
    assert listing == ([{"StringLikeIfExists": {"s3:prefix": prefixes}}] if prefixes else [])


@pytest.mark.shows("S10")
@pytest.mark.parametrize("logical_id", ["ScraperApi", "ScraperWorker"])
def test_what_fetches_for_strangers_is_in_no_network(logical_id: str) -> None:
    """Outside any VPC there is nothing private to reach: that is the rule of its way out."""
    assert functions()[logical_id].get("VpcConfig") is None
    assert "VpcConfig" not in template()["Globals"]["Function"]


@pytest.mark.parametrize("logical_id", functions())
def test_a_function_in_a_network_may_have_its_interfaces_made(logical_id: str) -> None:
    """All that Lambda asks of an execution role there; a function outside needs nothing of it."""
    needed = {"*": _NETWORK} if "VpcConfig" in functions()[logical_id] else {}
    assert permissions(logical_id, "ec2") == needed

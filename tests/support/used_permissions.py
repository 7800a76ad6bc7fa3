"""Comparison of what roles allow with what functions called: `python -m tests.support.used_permissions DIR`.

`make test` has every local cloud record its functions' AWS calls (`local/faults/aws_calls.py`) and ends with
this comparison: each call that was made is allowed, and each permission was used, but for those listed here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Set
from fnmatch import fnmatchcase
from pathlib import Path

from tests.support.function_env import functions, variables
from tests.support.roles import named, permissions

SERVICES = ("sqs", "s3", "dynamodb", "lambda", "secretsmanager")
# Services whose permissions in a role are for what AWS does with it: no code calls them.
NOT_COMPARED = {
    "logs": "Lambda's runtime writes what a function prints",
    "ec2": "Lambda makes the interfaces of a function in a VPC",
    "kms": "Secrets Manager decrypts on behalf of who reads a secret",
}
# Permissions that no function's code uses by a call of its own.
NOT_CALLED = {
    # Lambda's pollers use them with the function's role; functions call the last two only now and then.
    *("sqs:ReceiveMessage", "sqs:GetQueueAttributes", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"),
    # With it S3 answers 404 for an object that is gone, and not 403.
    "s3:ListBucket",
}
Unused = Set[tuple[str, str, str]]
UNUSED: Unused = frozenset(
    (
        # Callers use it, with the URLs that the function signs.
        ("OrchestratorApi", "s3:PutObject", "ContentBucket/uploads/*"),
        # The URL of a service's browser: the laptop's is a program.
        ("ScraperApi", "secretsmanager:GetSecretValue", "RendererUrlSecretArn"),
        ("ScraperWorker", "secretsmanager:GetSecretValue", "RendererUrlSecretArn"),
        # The laptop's stack has no reranker.
        ("EmbeddingReadApi", "secretsmanager:GetSecretValue", "RerankApiKeySecretArn"),
        # Vectors of a message that was never finished: its worker deletes them when it is.
        ("OrchestratorSweeper", "s3:DeleteObject", "ContentBucket/progress/*"),
        # A dead letter whose body is an object, of a document that is deleted later.
        ("OrchestratorSweeper", "s3:DeleteObject", "ContentBucket/dead-letters/*"),
        ("OrchestratorSweeper", "s3:GetObject", "ContentBucket/dead-letters/*"),
    )
)
"""Function, action and resource of permissions for cases that no test's cloud meets; each with its reason."""
BY_LOAD: Unused = frozenset(
    (worker, "dynamodb:PutItem", "StateTable/queue")
    for worker in ("ScraperWorker", "ChunkingWorker", "EmbeddingWorker")
)
"""Permissions that a run uses or not: a worker notes the age of messages that waited for long."""


def recorded(folder: Path) -> dict[str, set[tuple[str, str]]]:
    """Return the actions and resources by function."""
    found: dict[str, set[tuple[str, str]]] = {}
    for file in folder.glob("*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            call = json.loads(line)
            # What a variable names is what the template sets it to.
            given = variables(call["function"]).get(call["resource"])
            found.setdefault(call["function"], set()).add(
                (call["action"], named(given) if given else call["resource"])
            )
    return found


def differences(folder: Path, listed: Unused = UNUSED) -> list[str]:
    """Return a line for each call that no role allows and for each permission that nothing used.

    `listed` are permissions that nothing uses; one that was used, or that no role has, is a line too.
    """
    calls = recorded(folder)
    lines: list[str] = []
    stale = set(listed)
    for function in functions():
        made = calls.get(function, set())
        allowed = [
            (action, resource)
            for resource, actions in permissions(function, *SERVICES).items()
            for action in actions
        ]
        refused = [call for call in made if not any(_covers(each, call) for each in allowed)]
        unused = [each for each in allowed if not _used(each, made)]
        stale -= {(function, *each) for each in unused}
        lines += [
            f"{function} calls {action} on {on}, which its role does not allow" for action, on in refused
        ]
        lines += [
            f"{function} may {action} on {on}, which nothing used"
            for action, on in unused
            if (function, action, on) not in listed | BY_LOAD
        ]
    lines += [
        f"{function} may {action} on {on} is listed as unused, and was used or is not in its role"
        for function, action, on in stale
    ]
    return sorted(lines)


def _used(allowed: tuple[str, str], made: set[tuple[str, str]]) -> bool:
    return allowed[0] in NOT_CALLED or any(_covers(allowed, call) for call in made)


def _covers(allowed: tuple[str, str], call: tuple[str, str]) -> bool:
    (action, pattern), (called, resource) = allowed, call
    # A prefix of a bucket is recorded without its last part, a table's item by its kind.
    names = (resource, f"{resource}/", resource.partition("/")[0])
    return action == called and any(fnmatchcase(name, pattern) for name in names)


def main() -> int:
    """Print the differences; the exit status is 1 when there are any, or nothing was recorded."""
    folder = Path(sys.argv[1])
    found = differences(folder)
    counted = sum(map(len, recorded(folder).values()))
    lines = [*found, f"{counted} kinds of AWS calls were recorded, {len(found)} differ from the roles", ""]
    sys.stdout.write("\n".join(lines))
    return 1 if found or not counted else 0


if __name__ == "__main__":
    sys.exit(main())

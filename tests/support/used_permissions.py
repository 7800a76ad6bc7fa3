"""Comparison of what roles allow with what functions called: `python -m tests.support.used_permissions DIR`.

`make test` has every local cloud record its functions' AWS calls (`local/faults/aws_calls.py`) and ends with
this comparison: each call that was made is allowed, and each permission was used, but for those listed here.
"""

from __future__ import annotations

import json
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from tests.support.function_env import functions, variables
from tests.support.roles import named, permissions

SERVICES = ("sqs", "s3", "dynamodb", "lambda")
# Permissions that no function's code uses by a call of its own.
NOT_CALLED = {
    # Lambda's pollers use them with the function's role; functions call the last two only now and then.
    *("sqs:ReceiveMessage", "sqs:GetQueueAttributes", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"),
    # With it S3 answers 404 for an object that is gone, and not 403.
    "s3:ListBucket",
}
# Permissions for cases that no test's cloud meets; each is shown by tests without a cloud.
UNUSED = {
    # A chunk task that cannot be read, as for the other workers.
    ("ChunkingWorker", "sqs:SendMessage", "ChunkDlq"),
    # The vectors of a document that one invocation does not finish.
    ("EmbeddingWorker", "s3:PutObject", "ContentBucket/progress/*"),
    ("EmbeddingWorker", "s3:GetObject", "ContentBucket/progress/*"),
    # Chunks that are too large for a message.
    ("EmbeddingWriteApi", "s3:PutObject", "ContentBucket/chunks/*"),
    # A job that is asked for while it is embedded.
    ("OrchestratorApi", "dynamodb:GetItem", "StateTable"),
    # A retry that resumes at embedding.
    ("OrchestratorApi", "sqs:SendMessage", "EmbedQueue"),
    # A dead letter that is long, and the next job of its caller, which is admitted then.
    ("OrchestratorDeadLetters", "s3:PutObject", "ContentBucket/dead-letters/*"),
    ("OrchestratorDeadLetters", "sqs:SendMessage", "ScrapeQueue"),
    ("OrchestratorDeadLetters", "sqs:SendMessage", "ChunkQueue"),
    ("OrchestratorDeadLetters", "sqs:SendMessage", "EmbedQueue"),
    # A site whose robots.txt no worker has read before.
    ("ScraperApi", "dynamodb:PutItem", "StateTable/robots"),
    # A page whose text is too large for an answer.
    ("ScraperApi", "s3:PutObject", "ContentBucket/text/*"),
}


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


def differences(folder: Path) -> list[str]:
    """Return a line for each call that no role allows and for each permission that nothing used."""
    calls = recorded(folder)
    lines: list[str] = []
    for function in functions():
        made = calls.get(function, set())
        allowed = [
            (action, resource)
            for resource, actions in permissions(function, *SERVICES).items()
            for action in actions
        ]
        refused = [call for call in made if not any(_covers(each, call) for each in allowed)]
        unused = [each for each in allowed if (function, *each) not in UNUSED and not _used(each, made)]
        lines += [
            f"{function} calls {action} on {on}, which its role does not allow" for action, on in refused
        ]
        lines += [f"{function} may {action} on {on}, which nothing used" for action, on in unused]
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

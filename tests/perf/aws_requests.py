"""Requests to AWS that a stack made, as its emulator counts them, sorted by what AWS charges for."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from local.backends.ministack_server import COUNTS_PATH

Counts = Mapping[str, Mapping[str, int]]
"""By operation, such as `sqs:ReceiveMessage`: `requests`, `empty` and `units` of 64 KiB."""

_CARRIERS: Final = ("Send", "Receive", "Delete", "ChangeMessageVisibility")
_S3_WRITES: Final = ("s3:PUT", "s3:POST")
_S3_READS: Final = ("s3:GET", "s3:HEAD")
_DYNAMODB_WRITES: Final = ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems")


def read_counts(endpoint: str) -> Counts:
    """Return the counts since the emulator's start; `endpoint` is its address."""
    with urllib.request.urlopen(endpoint + COUNTS_PATH, timeout=10) as answer:  # noqa: S310 - loopback
        found: Counts = json.load(answer)
    return found


def between(before: Counts, after: Counts) -> dict[str, dict[str, int]]:
    """Return what was counted between two readings, by operation, without what did not happen."""
    nothing = {"requests": 0, "empty": 0, "units": 0}
    found = {
        name: {kind: value - before.get(name, nothing)[kind] for kind, value in counts.items()}
        for name, counts in after.items()
    }
    return {name: counts for name, counts in sorted(found.items()) if counts["requests"]}


def metered(counts: Counts) -> dict[str, int]:
    """Return the metered requests.

    `sqs` carried messages, `sqs_units` is what AWS charges for these; receives that found nothing are
    `sqs_empty`, what only looked at a queue is `sqs_other`; then `s3_write`, `s3_read`, `dynamodb_write` and
    `dynamodb_read`.
    """
    found = dict.fromkeys(
        (
            "sqs",
            "sqs_units",
            "sqs_empty",
            "sqs_other",
            "s3_write",
            "s3_read",
            "dynamodb_write",
            "dynamodb_read",
        ),
        0,
    )
    for name, count in counts.items():
        service, _, operation = name.partition(":")
        if service == "sqs" and operation.startswith(_CARRIERS):
            empty = count["empty"] if operation == "ReceiveMessage" else 0
            found["sqs"] += count["requests"] - empty
            found["sqs_units"] += count["units"] - empty
            found["sqs_empty"] += empty
        elif service == "sqs":
            found["sqs_other"] += count["requests"]
        elif name in _S3_WRITES:
            found["s3_write"] += count["requests"]
        elif name in _S3_READS:
            found["s3_read"] += count["requests"]
        elif service == "dynamodb":
            kind = "dynamodb_write" if operation in _DYNAMODB_WRITES else "dynamodb_read"
            found[kind] += count["requests"]
    return found


def per_job(before: Counts, after: Counts, jobs: int) -> dict[str, Any]:
    """Return the metered requests between two readings, per job."""
    return {name: round(value / jobs, 3) for name, value in metered(between(before, after)).items()}

"""Function of the delivery soak: records its work in a journal and ends as its messages say.

It is run as a Lambda function, from a copy, with nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import threading
import time
from typing import Any

WORK_S = (0.03, 0.12)
_work = threading.Event().wait


def _note(kind: str, deliveries: list[list[int]]) -> None:
    # A single write to a file opened for appending is atomic.
    line = json.dumps([kind, os.getpid(), time.monotonic(), deliveries]) + "\n"
    file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)


def _meet(fate: str, deliveries: list[list[int]]) -> None:
    if fate == "raise":
        _note("end", deliveries)
        raise LookupError("no such shelf")
    if fate == "hang":
        _work(60)
    _note("death", deliveries)
    if fate == "exit":
        os._exit(3)
    if fate == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Work for a moment; a message lists by receive count how each of its deliveries ends."""
    deliveries, fates, reported = [], [], []
    for record in event["Records"]:
        body = json.loads(record["body"])
        count = int(record["attributes"]["ApproximateReceiveCount"])
        deliveries.append([body["n"], count])
        fate = body["fates"][count - 1] if count <= len(body["fates"]) else ""
        if fate == "report":
            reported.append({"itemIdentifier": record["messageId"]})
        elif fate:
            fates.append(fate)
    _note("start", deliveries)
    work_s = random.uniform(*WORK_S)
    _work(work_s / 2)
    if fates:
        _meet(fates[0], deliveries)
    _work(work_s / 2)
    _note("end", deliveries)
    return {"batchItemFailures": reported}

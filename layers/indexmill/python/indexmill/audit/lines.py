"""Lines in an event of a subscription of CloudWatch Logs."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any


def audit_lines(event: dict[str, Any]) -> list[str]:
    """Return the lines that the subscription's filter chose; none of a message that only tests the target."""
    batch = json.loads(gzip.decompress(base64.b64decode(event["awslogs"]["data"])))
    if batch["messageType"] != "DATA_MESSAGE":
        return []
    return [str(each["message"]).rstrip("\r\n") for each in batch["logEvents"]]

"""Filter of a function's JSON log lines by level, as Lambda's ApplicationLogLevel."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

_LEVELS: Final = {
    name: at
    for at, names in enumerate((["TRACE"], ["DEBUG"], ["INFO"], ["WARN", "WARNING"], ["ERROR"], ["FATAL"]))
    for name in names
}
_INFO: Final = _LEVELS["INFO"]


def passes(line: str, least: str) -> bool:
    """Return whether Lambda keeps the line at ApplicationLogLevel `least`.

    Text that is no JSON object is kept. An object without a known level, or without a valid time, is INFO.
    """
    wanted = _LEVELS[least]
    if wanted <= _INFO and '"level"' not in line:
        return True
    try:
        record = json.loads(line)
    except ValueError:
        return True
    return not isinstance(record, dict) or _level(record) >= wanted


def _level(record: dict[str, Any]) -> int:
    try:
        datetime.fromisoformat(str(record.get("timestamp")))
    except ValueError:
        return _INFO
    return _LEVELS.get(str(record.get("level")).upper(), _INFO)

"""The bounded set of error codes."""

from __future__ import annotations

import re
from typing import Final

from indexmill.contracts.errors import ErrorCode

_HTTP_CODE: Final = re.compile(r"http_[1-5]\d\d")


def is_known_code(code: str) -> bool:
    """Return whether `code` belongs to the bounded set."""
    return code in ErrorCode.__members__.values() or _HTTP_CODE.fullmatch(code) is not None

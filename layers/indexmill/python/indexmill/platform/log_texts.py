"""Texts of log lines without the queries of URLs, which may hold a secret.

The runtime logs what a handler raises by itself, past `logging`: so a handler is an `entry_point`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_QUERY: Final = re.compile(r"(://[^\s?#]*)[?#]\S*")
"""Without the scheme, whose search would take quadratic time. A URL as it was submitted may have quotes."""


def without_queries(value: Any) -> Any:
    """Return a value of a log line with every URL in it, at any depth, cut before its query or fragment."""
    if isinstance(value, str):
        return _QUERY.sub(r"\1", value) if "://" in value else value
    if isinstance(value, dict):
        return {without_queries(key): without_queries(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_queries(each) for each in value]
    if value is None or isinstance(value, int | float):
        return value
    return without_queries(str(value))


def entry_point(handler: Callable[[dict[str, Any], Any], T]) -> Callable[[dict[str, Any], Any], T]:
    """Return the handler; what it raises, which the runtime logs, has no query of a URL.

    Such an error keeps the name of its type, by which alarms and people know it, and its place.
    """

    def call(event: dict[str, Any], context: Any) -> T:
        try:
            return handler(event, context)
        except Exception as error:
            if "://" not in (text := str(error)):
                raise
            plain = type(type(error).__name__, (Exception,), {})(without_queries(text))
            raise plain.with_traceback(error.__traceback__) from None

    return call

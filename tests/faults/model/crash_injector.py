"""Crash injector: kills the process before or after a chosen side effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any


class Killed(BaseException):
    """The process was killed. Not an Exception, so the product cannot catch it."""


@dataclass
class CrashInjector:
    """Counts side effects and kills before or after the one that was chosen."""

    left: int | None = None
    """Effects still allowed; None for as many as there are."""
    after: bool = False
    """Whether the fatal effect itself still happens."""

    def arm(self, at: int | None, *, after: bool) -> None:
        """Let the effect number `at` (from 0) be the last thing that happens."""
        self.left, self.after = at, after

    def around(self, effect: Callable[..., Any]) -> Callable[..., Any]:
        """Return `effect`, which may now be fatal."""

        @wraps(effect)
        def crashing(*given: Any, **named: Any) -> Any:
            fatal = self.left == 0
            if self.left is not None:
                self.left -= 1
            if fatal and not self.after:
                raise Killed
            result = effect(*given, **named)
            if fatal:
                raise Killed
            return result

        return crashing


class CrashingProxy:
    """Proxy of an adapter or fake: calls of the named methods may crash the process."""

    def __init__(self, inner: Any, crash_injector: CrashInjector, *effects: str) -> None:
        """`effects` are names of methods."""
        self._inner, self._fuse, self._effects = inner, crash_injector, effects

    def __getattr__(self, name: str) -> Any:
        """Return the method, under the crash injector if it is a side effect."""
        found = getattr(self._inner, name)
        return self._fuse.around(found) if name in self._effects else found

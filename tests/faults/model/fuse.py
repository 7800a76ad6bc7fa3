"""A process that dies at a chosen side effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any


class Killed(BaseException):
    """The process is gone. No `except Exception` of the product survives it."""


@dataclass
class Fuse:
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
        def fused(*given: Any, **named: Any) -> Any:
            fatal = self.left == 0
            if self.left is not None:
                self.left -= 1
            if fatal and not self.after:
                raise Killed
            result = effect(*given, **named)
            if fatal:
                raise Killed
            return result

        return fused


class Fused:
    """An adapter or twin whose named methods are side effects that may be fatal; the rest is passed on."""

    def __init__(self, inner: Any, fuse: Fuse, *effects: str) -> None:
        """`effects` are names of methods."""
        self._inner, self._fuse, self._effects = inner, fuse, effects

    def __getattr__(self, name: str) -> Any:
        """Return the method, behind the fuse when it is an effect."""
        found = getattr(self._inner, name)
        return self._fuse.around(found) if name in self._effects else found

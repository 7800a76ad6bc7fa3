"""Effect of a fault on one call: before, instead of, or after it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from local.faults.rules import Rule

Break = Callable[[], BaseException]
"""Builds the error that the call's library would raise when the other side is unreachable."""


def before(rule: Rule | None, broken: Break) -> None:
    """Apply a fault that takes effect before or instead of the call."""
    if rule is None:
        return
    if rule.kind == "delay":
        time.sleep(rule.seconds)
    _at_once(rule, broken)


async def before_async(rule: Rule | None, broken: Break) -> None:
    """Do the same on an event loop."""
    if rule is None:
        return
    if rule.kind == "delay":
        await asyncio.sleep(rule.seconds)
    _at_once(rule, broken)


def after(rule: Rule | None, broken: Break) -> None:
    """Apply a fault that takes effect after the call."""
    if rule is None:
        return
    if rule.kind == "kill_after":
        _die()
    if rule.kind == "execute_then_error":
        raise broken()


@contextmanager
def around(rule: Rule | None, broken: Break) -> Iterator[None]:
    """Apply both around the call."""
    before(rule, broken)
    yield
    after(rule, broken)


def _at_once(rule: Rule, broken: Break) -> None:
    if rule.kind == "kill_before":
        _die()
    if rule.kind == "error":
        raise broken()


def _die() -> NoReturn:
    # SIGKILL, not exit: no cleanup may run, as when a machine fails.
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process outlived its SIGKILL")

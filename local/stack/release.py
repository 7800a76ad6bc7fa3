"""Release of another tree on a running stack, in the order of a deployment: migrations, canary, all.

The functions of the tree run beside those in use and get a share of the invocations, as by a weighted alias.
When they fail too often the share becomes 0 again; else they take over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from local.compute.host import LambdaHost
from local.stack.preparation import Preparation, PreparationFailed
from local.stack.runtime import Runtime
from local.template.template import Template

ERRORS: Final = 3
"""Errors of new versions that end the release, as in the template's alarms."""
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Target:
    """Stack that a tree is released on."""

    host: LambdaHost
    runtime: Runtime
    database_url: str
    aws_endpoint: str
    automatic: Mapping[str, str]
    """Parameters that the stack sets, and in `overrides` those of the user."""
    overrides: Mapping[str, str]
    region: str
    account_id: str
    log: Path


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a release."""

    released: bool
    reason: str = ""
    """Sentence for an unsuccessful release."""
    migrations: list[str] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    """Errors of the new versions, by function."""


class Releases:
    """Releases, one at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._one = asyncio.Lock()

    async def release(self, tree: Path, share: float, seconds: float) -> dict[str, Any]:
        """Release `tree`, with `share` (0 to 1) of the invocations for `seconds`; returns an Outcome."""
        async with self._one:
            preparation = Preparation(self._target.log)
            try:
                await preparation.start()
                return asdict(await self._release(preparation, tree, share, seconds))
            except PreparationFailed as failed:
                return asdict(Outcome(released=False, reason=str(failed)))
            finally:
                await preparation.stop()

    async def _release(self, preparation: Preparation, tree: Path, share: float, seconds: float) -> Outcome:
        target = self._target
        translated, parameters = await preparation.translate(
            tree / "template.yaml", target.automatic, target.overrides, target.region
        )
        template = Template(
            translated, parameters, folder=tree, region=target.region, account_id=target.account_id
        )
        answer_s = float(parameters["DatabaseAnswerSeconds"])
        applied = await preparation.migrate(target.database_url, tree / "sql", answer_s)
        ids, arns = await preparation.create_resources(
            target.aws_endpoint, template.stateful(), target.region
        )
        functions = target.runtime.configured(template.cloud(ids, arns).functions)
        target.host.begin_canary(functions, share)
        errors = await self._watch(seconds)
        failed = sum(errors.values()) >= ERRORS
        target.host.end_canary(promote=not failed)
        reason = f"{sum(errors.values())} invocations of the new versions failed" if failed else ""
        return Outcome(not failed, reason, applied, errors)

    async def _watch(self, seconds: float) -> dict[str, int]:
        """Return the new versions' errors after `seconds`, or as soon as they are too many."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            errors = self._target.host.canary_errors()
            if sum(errors.values()) >= ERRORS or loop.time() >= end:
                return errors
            await asyncio.sleep(_LOOK_S)

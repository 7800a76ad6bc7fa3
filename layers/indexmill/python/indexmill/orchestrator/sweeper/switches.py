"""Turn the stages' event source mappings on and off: the only place that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from indexmill.contracts.errors import TransientError
from indexmill.contracts.pipeline import BY_NAME, EVERY_STAGE
from indexmill.orchestrator.store.sweep import SweepStore
from indexmill.platform.aws.state_table import StoreUnavailable
from indexmill.platform.breakers import BreakerStates
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock

Incident = tuple[str, str]
"""Kind and subject."""


class Switch(Protocol):
    """Event source mapping of a stage's worker."""

    def set(self, *, on: bool) -> bool:
        """Turn it on or off; return whether that changed anything. Raises TransientError."""
        ...


@dataclass(frozen=True, slots=True)
class SetSwitches:
    """A stage is on unless an operator's pause or an open breaker says no: none stays off by accident."""

    store: SweepStore
    breakers: BreakerStates
    switches: Mapping[str, Switch]
    """By stage."""
    observability: Observability
    clock: Clock

    def __call__(self) -> list[str]:
        """Set all switches; return the stages that were interrupted within INTERRUPTED_FOR.

        Their jobs without events are not stale: messages waited for a pause to end or a breaker to close.
        Raises TransientError.
        """
        pauses, (not_closed, breakers) = self.store.pauses(), self._breakers()
        reported = [self._report("paused", pauses)]
        if not_closed is not None:
            reported.append(self._report("breaker_open", not_closed))
        self._count(reported)
        switched_off = {
            stage: reason for stage in self.switches if (reason := _reason(stage, pauses, breakers))
        }
        for stage, switch in self.switches.items():
            self._set(stage, switch, switched_off.get(stage))
        interruptions = self.store.interruptions()
        return [stage for stage in self.switches if any(_interrupts(each, stage) for each in interruptions)]

    def _breakers(self) -> tuple[Mapping[str, str] | None, Mapping[str, str]]:
        """Return why each breaker is not closed (None when unknown), and those whose stage is switched off.

        A half-open breaker is not closed, but its stage stays on: it needs a message for the probe.
        """
        try:
            states = self.breakers.read()
        except StoreUnavailable:
            # Without them no stage is switched off: a worker asks its breaker itself.
            self.observability.log.warning("breakers.unknown")
            return None, {}
        now = self.clock.now().timestamp()
        phases = {name: state.phase(now) for name, state in states.items()}
        not_closed = {
            name: state.refusal or f"{state.failures} failures in a row"
            for name, state in states.items()
            if phases[name] != "closed"
        }
        return not_closed, {name: reason for name, reason in not_closed.items() if phases[name] == "open"}

    def _set(self, stage: str, switch: Switch, reason: str | None) -> None:
        try:
            changed = switch.set(on=reason is None)
        except TransientError as error:
            self.observability.log.warning("switch.failed", extra={"stage": stage, "code": error.code})
            return
        if changed:
            to = "on" if reason is None else "off"
            self.observability.log.warning(
                "stage.switched", extra={"stage": stage, "to": to, "reason": reason}
            )

    def _report(self, kind: str, current: Mapping[str, str]) -> tuple[set[Incident], set[Incident]]:
        """Return the incidents of `kind` that were open before, and those that are now."""
        detail = {subject: {"reason": reason} for subject, reason in current.items()}
        opened, closed = record_incidents(self.store, self.observability, kind, detail)
        before = {*current, *closed}.difference(opened)
        return {(kind, subject) for subject in before}, {(kind, subject) for subject in current}

    def _count(self, reported: Sequence[tuple[set[Incident], set[Incident]]]) -> None:
        """Count the stages whose interruption began or ended.

        Not each turn of a switch: while a breaker stays open, its stage is on for each probe.
        """
        before, now = (set[Incident]().union(*incidents) for incidents in zip(*reported, strict=True))
        for stage in self.switches:
            was, held = (any(_interrupts(each, stage) for each in incidents) for incidents in (before, now))
            if was != held:
                self.observability.count("stage_switched_total", stage=stage, to="off" if held else "on")


def _interrupts(incident: Incident, stage: str) -> bool:
    kind, subject = incident
    return subject in (stage, EVERY_STAGE) if kind == "paused" else subject in BY_NAME[stage].breakers


def _reason(stage: str, pauses: Mapping[str, str], breakers: Mapping[str, str]) -> str | None:
    if stage in pauses or EVERY_STAGE in pauses:
        return pauses.get(stage) or pauses[EVERY_STAGE]
    closed_by = [name for name in breakers if name in BY_NAME[stage].breakers]
    return f"breaker {closed_by[0]} is open" if closed_by else None


def record_incidents(
    store: SweepStore, observability: Observability, kind: str, current: Mapping[str, Mapping[str, object]]
) -> tuple[list[str], list[str]]:
    """Make `current` (detail by subject) the open incidents of `kind`; log and return what opened and closed.

    Raises TransientError(database_unavailable).
    """
    opened, closed = store.incidents(kind, current)
    for subject in opened:
        observability.log.warning("incident.opened", extra={"kind": kind, "subject": subject})
    for subject in closed:
        observability.log.info("incident.closed", extra={"kind": kind, "subject": subject})
    return opened, closed

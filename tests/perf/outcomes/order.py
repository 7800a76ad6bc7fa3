"""One seeded order of events: user actions, deliveries, faults and time, until every job has ended.

Everything is drawn by key: a user action by its round, a message's fate by its job's ordinal, attempt, stage
and how often a message of that kind was looked at. Chunk work is not scheduled: it is done before the next
step, whether it is a call inside the consumer of results or a queue. Its faults are named by job and try.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.perf.outcomes.adapter import MOST_CRASHES, ChunkFault, Crash, System
from tests.perf.outcomes.draws import Draws

Key = tuple[int, int, str, str]
"""A message: its job's ordinal, attempt, stage, and "work", "dead" or the status that it reports."""

_FINAL: Final = ("done", "failed")
_MOMENT_S: Final = 8
_LEASE_S: Final = 45
_STUCK_S: Final = 31 * 60
"""Sums of these keep some seconds off the limits of 30 and 60 s: real time passes in Postgres as well."""
_RECOVERY_S: Final = (_LEASE_S, _LEASE_S, _LEASE_S, _LEASE_S, _LEASE_S, _STUCK_S)
"""Enough for four tries of a failing call, for two counts that agree, and for the half-hour query."""
_ROUNDS: Final = 12
_SETTLE_ROUNDS: Final = 40
_MOST_JOBS: Final = 6
_MOST_LOST: Final = 3
_MOST_DEAD: Final = 2
_MOST_CRASHES: Final = 5
_BATCH: Final = 10
_QUEUES: Final = ("scrape", "embed", "callbacks")
_STAGES: Final = {"scrape": "scraping", "embed": "embedding", "chunk": "chunking"}
_ACT_CRASHES: Final[tuple[Crash, ...]] = (("commit", False), ("commit", True))
_CRASHES: Final[dict[str, tuple[Crash, ...]]] = {
    "scrape": (("send", False), ("send", True)),
    "embed": (("publish", True), ("send", False), ("send", True)),
    "callbacks": (("commit", False), ("commit", True)),
}
_ALWAYS: Final = 1_000
_CHUNK_PLANS: Final[tuple[tuple[tuple[ChunkFault, int], float], ...]] = (
    (("none", 0), 50),
    (("lost", 1), 20),
    (("crash", 1), 15),
    (("crash", 2), 10),
    (("crash", _ALWAYS), 5),
)


@dataclass
class Order:
    """Runs one order; `class_` is calm (no faults), faults, or chunk_faults."""

    draws: Draws
    class_: str
    system: System = field(init=False)
    answers: list[Any] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    """Job ids by ordinal."""
    chunk_faults: int = 0
    """How many were hit. An order with none must be equal to the byte across the change of transport."""
    _seen: Counter[Key] = field(default_factory=Counter)
    _tries: Counter[tuple[int, int]] = field(default_factory=Counter)
    _spent: Counter[str] = field(default_factory=Counter)
    _keyed: tuple[dict[str, Any], str] | None = None
    _settled_faults: int = 0

    def run(self, database_url: str) -> None:
        """Run to the end. The system stays open for the reader of its rows."""
        self.system = System(database_url, self.draws.order + 1, self._plan_chunk)
        for number in range(_ROUNDS):
            self._user_actions(number)
            names = [*_QUEUES, *(f"{name}-dead" for name in _QUEUES)]
            for name in sorted(names, key=lambda name: self.draws.number("line", number, name)):
                self._deliver_queue(name, number)
            if self.draws.chance(0.45, "tick", number):
                self._tick(number)
            statuses = self.system.statuses()
            self.trace.append(" ".join(statuses[job_id] for job_id in self.ids))
        self._settle()

    # User actions

    def _user_actions(self, number: int) -> None:
        draws = self.draws
        count = (
            1 + int(draws.number("first") * 3) if number == 0 else int(draws.chance(0.3, "submit", number))
        )
        for nth in range(count):
            if len(self.ids) < _MOST_JOBS:
                self._submit(number, nth)
        for action, chance, wanted in (
            ("cancel", 0.15, ("pending", "scraping", "chunking", "embedding")),
            ("retry", 0.35, ("failed",)),
            ("replay", 0.12, _FINAL),
        ):
            if self.ids and draws.chance(chance, action, number):
                self._act_on_a_job(action, wanted, number)

    def _submit(self, number: int, nth: int) -> None:
        draws, key = self.draws, ("submit", number, nth)
        kind = draws.weighted(
            (
                ("new", 35),
                ("shaky", 12),
                ("same", 12),
                ("changed", 15),
                ("twice", 10),
                ("batch", 8),
                ("dependent", 8),
                ("repeated", 5),
                ("conflicting", 3),
                ("bad", 2),
                ("missing", 6),
            ),
            *key,
            "kind",
        )
        fields, idempotency = self._request(kind, key)
        answer = self.system.submit(fields, idempotency, self._act_crash(*key))
        self._note("submit", kind, answer)

    def _request(self, kind: str, key: tuple[Any, ...]) -> tuple[dict[str, Any], str | None]:
        if kind in ("repeated", "conflicting") and self._keyed is not None:
            fields, idempotency = self._keyed
            return (fields if kind == "repeated" else {**fields, "priority": 7}), idempotency
        if kind == "bad":
            return {"url": "https://127.0.0.1/private"}, None
        if kind == "missing":
            return {"url": f"https://example.com/{self.system.caller_id}-missing-{key[1]}-{key[2]}"}, None
        fields: dict[str, Any] = {"priority": self.draws.pick((50, 50, 80), *key, "priority")}
        if kind == "batch":
            fields["urls"] = [self.system.page("new"), self.system.page("new")]
        else:
            page = kind if kind in ("new", "shaky", "same", "changed", "twice") else "new"
            fields |= {"url": self.system.page(page), "force": kind in ("same", "changed")}
        if kind == "dependent" and self.ids:
            fields["depends_on"] = [self.draws.pick(self.ids, *key, "on")]
        idempotency = f"key-{key[1]}-{key[2]}" if self.draws.chance(0.3, *key, "idempotency") else None
        if idempotency is not None:
            self._keyed = fields, idempotency
        return fields, idempotency

    def _act_on_a_job(self, action: str, wanted: tuple[str, ...], number: int) -> None:
        statuses = self.system.statuses()
        fitting = [job_id for job_id in self.ids if statuses[job_id] in wanted]
        anyone = not fitting or self.draws.chance(0.2, action, number, "any")
        job_id = self.draws.pick(self.ids if anyone else fitting, action, number, "job")
        crash = self._act_crash(action, number)
        if action == "cancel":
            answer = self.system.cancel(job_id, crash)
        elif action == "retry":
            answer = self.system.retry(job_id, crash)
            if answer == "killed":
                # Its message is sent by the sweeper now: a duplicate result of the job, which may come at any
                # time, made the release with the synchronous call send it as well.
                self.system.tick(_LEASE_S, None)
        else:
            stored = self.draws.chance(0.5, action, number, "stored")
            answer = self.system.replay(job_id, stored=stored, crash=crash)
        self._note(action, self.ids.index(job_id), answer)

    def _act_crash(self, *key: object) -> Crash | None:
        if self.class_ == "calm" or not self.draws.chance(0.12, *key, "crashes"):
            return None
        return self.draws.pick(_ACT_CRASHES, *key, "crash")

    def _note(self, action: str, target: object, answer: Any) -> None:
        self._finish_chunk_work()
        self._learn_ids()
        self.answers.append([action, target, answer])

    def _learn_ids(self) -> None:
        self.ids += sorted(self.system.statuses().keys() - set(self.ids))

    # Time

    def _tick(self, number: int) -> None:
        seconds = self.draws.weighted(
            ((_MOMENT_S, 40), (_LEASE_S, 40), (_STUCK_S, 20)), "tick", number, "seconds"
        )
        crashes = self.class_ != "calm" and self.draws.chance(0.1, "tick", number, "crashes")
        self.system.tick(seconds, ("send", self.draws.chance(0.5, "tick", number)) if crashes else None)
        self._finish_chunk_work()

    # Deliveries

    def _deliver_queue(self, name: str, number: int) -> None:
        waiting = self._keyed_messages(name)
        waiting.sort(key=lambda each: self.draws.number("order", number, *each[0], each[1]))
        batch: list[Any] = []
        for key, _, message in waiting:
            fate = self._fate(name, key)
            if fate == "deliver":
                batch.append(message)
                continue
            self._deliver(name, batch)
            batch = []
            self._meet_fate(name, key, message, fate)
        self._deliver(name, batch)

    def _keyed_messages(self, name: str) -> list[tuple[Key, int, Any]]:
        """Return the waiting messages with their keys, equal ones numbered."""
        copies: Counter[Key] = Counter()
        found = []
        for message in self.system.queues[name].messages:
            key = self._key(name, message)
            found.append((key, copies[key], message))
            copies[key] += 1
        return found

    def _key(self, name: str, message: Any) -> Key:
        said = json.loads(message.body)
        ordinal = self.ids.index(said["job_id"]) if said["job_id"] in self.ids else -1
        kind = "dead" if name.endswith("-dead") else said.get("status", "work")
        return ordinal, said["attempt"], said.get("stage") or _STAGES[name.removesuffix("-dead")], kind

    def _fate(self, name: str, key: Key) -> str:
        self._seen[key] += 1
        if self.class_ == "calm":
            choices = (("deliver", 80.0), ("postpone", 20.0))
        elif name.endswith("-dead"):
            choices = (("deliver", 70.0), ("postpone", 15.0), ("duplicate", 7.0), ("crash", 8.0))
        else:
            choices = (
                ("deliver", 66.0),
                ("postpone", 10.0),
                ("duplicate", 8.0),
                ("crash", 8.0),
                ("lose", 4.0),
                ("move to the DLQ", 2.0),
                ("move to the DLQ, still in flight", 2.0),
            )
        return self.draws.weighted(choices, "fate", name, *key, self._seen[key])

    def _meet_fate(self, name: str, key: Key, message: Any, fate: str) -> None:
        queue = self.system.queues[name]
        if fate == "duplicate":
            self._deliver(name, [message], stays=True)
        elif fate == "crash" and self._spend("crash", _MOST_CRASHES):
            self._deliver(name, [message], self._crash(name, key))
        elif fate == "lose" and self._spend("lost", _MOST_LOST):
            queue.delete([message.id])
        elif fate.startswith("move") and self._spend("dead", _MOST_DEAD):
            self.system.queues[f"{name}-dead"].messages.append(replace(message))
            if fate == "move to the DLQ":
                queue.delete([message.id])

    def _spend(self, what: str, most: int) -> bool:
        self._spent[what] += 1
        return self._spent[what] <= most

    def _crash(self, name: str, key: Key) -> Crash:
        if name.endswith("-dead"):
            return "commit", self.draws.chance(0.5, "crash", *key, self._seen[key])
        found = self.draws.pick(_CRASHES[name], "crash", *key, self._seen[key])
        # Between the commit of a scrape and its chunk work the two transports differ.
        if key[2:] == ("scraping", "success") and self.class_ != "chunk_faults":
            return "commit", False
        return found

    def _deliver(
        self, name: str, messages: list[Any], crash: Crash | None = None, *, stays: bool = False
    ) -> None:
        for start in range(0, len(messages), _BATCH):
            picked = messages[start : start + _BATCH]
            self._handle(name, picked, crash, stays=stays)
            if self._finish_chunk_work():
                # What a killed caller of the synchronous chunker did not acknowledge is redelivered at once.
                left = {message.id for message in self.system.queues[name].messages}
                again = [message for message in picked if message.id in left and not stays and crash is None]
                if again and name == "callbacks":
                    self._handle(name, again, None, stays=False)

    def _handle(self, name: str, picked: list[Any], crash: Crash | None, *, stays: bool) -> None:
        queue = self.system.queues[name]
        present = {message.id for message in queue.messages}
        picked = [message for message in picked if message.id in present]
        if not picked:
            return
        leaving = self.system.handle(name, picked, crash)
        if leaving and not stays:
            queue.messages = [each for each in queue.messages if each.id not in leaving]

    # Chunk work

    def _plan_chunk(self, job_id: str) -> ChunkFault:
        if self.class_ != "chunk_faults":
            return "none"
        self._learn_ids()
        ordinal = self.ids.index(job_id)
        work = ordinal, int(self.system.job(job_id)["attempt"])
        self._tries[work] += 1
        fault, tries = self.draws.weighted(_CHUNK_PLANS, "chunk", ordinal)
        if tries == _ALWAYS and self.system.has_chunk_queue:
            # Then it is poison, which the next worker must be able to report.
            tries = MOST_CRASHES
        if self._tries[work] > tries:
            return "none"
        self.chunk_faults += 1
        return fault

    def _finish_chunk_work(self) -> bool:
        """Do the chunk work that waits; after a fault let enough time pass for it to be done again."""
        self._drain_chunks()
        waiting = "chunking" in self.system.statuses().values()
        if self.chunk_faults == self._settled_faults and not waiting:
            return False
        # Whether a fault was hit is the same with both transports; how long its repair takes is not.
        for seconds in _RECOVERY_S:
            # The sweeper cannot tell a lost message from one whose result is in the queue.
            for name in ("callbacks-dead", "callbacks"):
                self._handle_all(name, self._keyed_messages(name))
            self._drain_chunks()
            self.system.tick(seconds, None)
            self._drain_chunks()
        if waiting:
            self.chunk_faults += 1
        self._settled_faults = self.chunk_faults
        return True

    def _drain_chunks(self) -> None:
        if not self.system.has_chunk_queue:
            return
        queue, calm = self.system.queues["chunk"], []
        for message in list(queue.messages):
            fault = self._plan_chunk(json.loads(message.body)["job_id"])
            if fault == "lost":
                queue.delete([message.id])
            elif fault == "crash":
                self._handle("chunk", [message], ("send", False), stays=False)
            else:
                calm.append(message)
        for start in range(0, len(calm), _BATCH):
            self._handle("chunk", calm[start : start + _BATCH], None, stays=False)
        for name in ("chunk-dead", "callbacks"):
            waiting = self._keyed_messages(name)
            self._handle_all(name, [each for each in waiting if each[0][2] == "chunking"])

    def _handle_all(self, name: str, waiting: list[tuple[Key, int, Any]]) -> None:
        messages = [message for _, _, message in sorted(waiting, key=lambda each: each[:2])]
        for start in range(0, len(messages), _BATCH):
            self._handle(name, messages[start : start + _BATCH], None, stays=False)

    # The end

    def _settle(self) -> None:
        """Deliver everything without further faults, until each job has ended."""
        for _ in range(_SETTLE_ROUNDS):
            for name in (*(f"{name}-dead" for name in _QUEUES), *_QUEUES):
                for _ in range(_SETTLE_ROUNDS):
                    waiting = self._keyed_messages(name)
                    if not waiting:
                        break
                    waiting.sort(key=lambda each: (each[0], each[1]))
                    self._deliver(name, [message for _, _, message in waiting[:_BATCH]])
            if all(status in _FINAL for status in self.system.statuses().values()):
                return
            self.system.tick(_LEASE_S, None)
            self._finish_chunk_work()
            if not any(queue.messages for queue in self.system.queues.values()):
                self.system.tick(_STUCK_S, None)
                self._finish_chunk_work()

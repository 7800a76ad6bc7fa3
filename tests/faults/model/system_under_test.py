"""System under test: the product's use cases from submit to publish, on fake queues and one backend."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from indexmill.chunking.worker import ChunkBatch, ChunkDocuments
from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_actions import ReplayRequest
from indexmill.contracts.identity import CallerContext, corpus_key
from indexmill.contracts.job import SubmitRequest
from indexmill.contracts.messages import ChunkTask, EmbedTask, ScrapeTask, StageResult
from indexmill.embedding.ports import Hit
from indexmill.embedding.worker import EmbedBatch
from indexmill.orchestrator.actions.cancel import CancelJob
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.actions.retry import RetryJobs
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.results.apply import ApplyResults, Recorder
from indexmill.orchestrator.results.dead_letters import KeepDeadLetters
from indexmill.orchestrator.results.decide import Decider
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.orchestrator.sweeper.rescue import CountMessages, Rescue
from indexmill.orchestrator.sweeper.sweep import FindOtherModels, MirrorCallers, Purge, Stores, SweepJobs
from indexmill.orchestrator.sweeper.switches import SetSwitches
from indexmill.platform.consumer.sqs_batch import SqsBatch
from indexmill.platform.observability import Observability
from indexmill.scraper.robots import Robots
from indexmill.scraper.scrape import ScrapeParts
from indexmill.scraper.worker import ScrapeBatch
from tests.faults.model.backends import Backend, QueueDepth
from tests.faults.model.crash_injector import CrashingProxy, CrashInjector
from tests.faults.model.fake_sqs import FakeQueue, Message, dlq_name
from tests.faults.model.invariants import (
    Observations,
    ObservedIndex,
    ObservedRecorder,
    ObservedStore,
    illegal_transitions,
    violated_end_states,
)
from tests.faults.model.message_locations import STAGES, WorkItem, in_transit, work_item
from tests.faults.model.site import Site, SubmitKind
from tests.support.events import FakeContext
from tests.support.index_builders import results
from tests.support.jobs import state_of, stored_job
from tests.support.sweeper import CountedBuilder
from tests.twins.blobs import InMemoryBlobs
from tests.twins.embedder import HashEmbedder
from tests.twins.fetcher import InlineIsolation, InMemoryRobotsCache
from tests.twins.state_table import InMemoryBreakers, InMemoryDeliveryLog, in_memory_mirror, unlimited_pace
from tests.twins.tokenizer import WordTokenizer
from tests.twins.uploads import objects
from tests.twins.vector_cache import InMemoryVectorCache

CORPUS: Final = "model"
_STORE_EFFECTS: Final = (
    "transaction",
    "claim",
    "mark_sent",
    "mark_failed",
    "record_dead_letter",
)
_SWEEP_EFFECTS: Final = ("send_again", "purge")
_callers = itertools.count(1)
_QUIET: Final = Observability("model", level="CRITICAL")


class SystemUnderTest:
    """All functions' use cases. Each side effect may crash the process."""

    def __init__(self, backend: Backend, reached: Counter[str] | None = None) -> None:
        """Create a caller of its own: examples share a database. `reached` counts outcomes."""
        self.backend, self.crash_injector = backend, CrashInjector()
        self.observations = Observations(reached if reached is not None else Counter())
        number = next(_callers)
        self.caller = CallerContext(caller_id=f"model-{number}", internal=True)
        # Not random: a failing order must fail again.
        ids = (str(uuid.UUID(int=number << 64 | each)) for each in itertools.count(1))
        self._next_id = lambda: next(ids)
        work = (*STAGES, "callbacks")
        self.queues = {name: FakeQueue(name) for name in (*work, *map(dlq_name, work))}
        self._lost: set[WorkItem | None] = set()
        self._site = Site(f"model{number}")
        self._clients: dict[str, Any] = {
            name: CrashingProxy(queue, self.crash_injector, "send", "give_back", "delete")
            for name, queue in self.queues.items()
        }
        store: Any = CrashingProxy(
            ObservedStore(backend.store, self.observations), self.crash_injector, *_STORE_EFFECTS
        )
        record: Any = ObservedRecorder(
            store, Decider(backend.clock, self._next_id), self.observations, _QUIET
        )
        queues = {stage: self._clients[name] for name, stage in STAGES.items()}
        relay = Relay(store, queues, record, _QUIET)
        self._cancel = CancelJob(store, relay, backend.clock)
        self._retry = RetryJobs(store, relay, self._next_id)
        self._replay = ReplayJobs(store, relay, self._next_id)
        self._submit = SubmitJobs(store, relay, *objects(), make_id=self._next_id)
        self._sweep = self._sweeper(store, record, relay)
        self._log: Any = CrashingProxy(InMemoryDeliveryLog(backend.clock), self.crash_injector, "write")
        given: Any = (self._scrape_parts(), self._clients["callbacks"], self._clients["scrape"])
        self._scraper = ScrapeBatch(*given)
        handle_dead_letters = KeepDeadLetters(store, record, relay, InMemoryBlobs(), _QUIET)
        self._handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "scrape": self._batch("scrape", ScrapeTask, self._scraper, self._log),
            "chunk": self._batch("chunk", ChunkTask, self._chunk(), self._log),
            "embed": self._batch("embed", EmbedTask, self._embed(), self._log),
            "callbacks": self._batch("callbacks", StageResult, ApplyResults(record, relay), None),
            **{dlq_name(name): handle_dead_letters for name in work},
        }

    def _depth(self, name: str) -> QueueDepth:
        return QueueDepth([self.queues[name], self.queues[dlq_name(name)]])

    def _sweeper(self, store: Any, record: Recorder, relay: Relay) -> SweepJobs:
        view: Any = CrashingProxy(self.backend.view, self.crash_injector, *_SWEEP_EFFECTS)
        queues, space = {stage: self._depth(name) for name, stage in STAGES.items()}, HashEmbedder().space
        return SweepJobs(
            stores=Stores(store, view),
            relay=relay,
            count=CountMessages(view, queues, self._depth("callbacks")),
            rescue=Rescue(view, record, relay, _QUIET),
            switches=SetSwitches(view, InMemoryBreakers(), {}, _QUIET, self.backend.clock),
            purge=Purge(view),
            index_builder=CountedBuilder(),
            mirror=MirrorCallers(view, in_memory_mirror()),
            other_models=FindOtherModels(view, space.model, space.dimension, _QUIET, self.backend.clock),
            observability=_QUIET,
        )

    def _batch(
        self, name: str, model: Any, handle: Any, log: Any
    ) -> Callable[[dict[str, Any]], dict[str, Any]]:
        batch = SqsBatch[Any](
            model,
            handle,
            source=self._clients[name],
            dead=self._clients[dlq_name(name)],
            observability=_QUIET,
            delivery_log=log,
            clock=self.backend.clock,
        )
        return lambda event: batch(event, FakeContext())

    def _scrape_parts(self) -> ScrapeParts:
        clock = self.backend.clock
        return ScrapeParts(
            fetcher=self._site,
            robots=Robots(self._site, InMemoryRobotsCache(), clock, user_agent="IndexmillBot/1.0"),
            rates=unlimited_pace(clock),
            blobs=InMemoryBlobs(),
            isolation=InlineIsolation(),
            clock=clock,
            known_for=timedelta(days=1),
        )

    def _chunk(self) -> ChunkBatch:
        documents = ChunkDocuments(WordTokenizer(), InMemoryBlobs())
        return ChunkBatch(documents, self._clients["callbacks"], self.backend.clock)

    def _embed(self) -> EmbedBatch:
        index: Any = CrashingProxy(
            ObservedIndex(self.backend.index, self.backend.store, self.observations),
            self.crash_injector,
            "publish",
        )
        return EmbedBatch(
            index,
            HashEmbedder(),
            InMemoryBlobs(),
            self._clients["callbacks"],
            InMemoryVectorCache(),
            self.backend.clock,
        )

    def submit(self, kind: SubmitKind) -> None:
        """Submit a new page, or the last one again."""
        url = self._site.page(kind)
        forced = kind in ("same", "changed")
        request = SubmitRequest(url=url, corpus_name=CORPUS, force=forced)
        answer = self._submit(self.caller, request, "request")
        self.observations.count("deduplicated", answer.deduplicated)

    def handle(self, name: str, picked: Sequence[Message]) -> set[str]:
        """Let the queue's consumer handle messages; return the ids of those that it deletes."""
        answer = self._handlers[name](self.queues[name].event(picked))
        kept = {item["itemIdentifier"] for item in answer["batchItemFailures"]}
        leaving = [message for message in picked if message.id not in kept]
        if name in map(dlq_name, STAGES):
            self._check_failed({work_item(name, message) for message in leaving})
        return {message.id for message in leaving}

    def _check_failed(self, dead_letters: set[WorkItem | None]) -> None:
        """Check that no job still waits for a task that is a dead letter."""
        waiting = dead_letters & self.backend.unaccounted(self.caller.caller_id)
        self.observations.violations += [
            f"{work} is a dead letter and its job did not fail" for work in waiting
        ]

    def lose(self, name: str, message: Message) -> None:
        """Lose a message: it leaves its queue without being handled."""
        self.queues[name].delete([message.id])
        self._lost.add(work_item(name, message))

    def stranded(self) -> list[str]:
        """Return work items whose message is neither in a queue nor unsent, and was not lost by the model."""
        out = self.backend.unaccounted(self.caller.caller_id)
        return [f"{work} has no message" for work in out - in_transit(self.queues) - self._lost]

    def dispatches(self) -> Counter[WorkItem | None]:
        """Return how often each work item's message was sent to its stage."""
        return Counter(work_item(name, message) for name in STAGES for message in self.queues[name].sent)

    def tick(self, seconds: int) -> None:
        """Let time pass and run the sweeper."""
        self.backend.clock.tick(seconds)
        self.backend.age(seconds)
        done = self._sweep()
        self.observations.count("rescued: lost", done["lost"])
        self.observations.count("rescued: silent", done["rescued"])

    def cancel(self, job_id: str) -> None:
        """Cancel a job; a refusal is counted."""
        self._ask("canceled", lambda: self._cancel(self.caller, job_id, "model"))

    def retry(self, job_id: str) -> None:
        """Retry a job; a refusal is counted."""
        self._ask("retried", lambda: self._retry.one(self.caller, job_id))

    def replay(self, job_id: str, *, stored: bool) -> None:
        """Replay a job, from the page or from its stored content; a refusal is counted."""
        request = ReplayRequest(source="stored" if stored else "fetch")
        self._ask(
            f"replayed: {request.source}",
            lambda: self._replay.replay(self.caller, job_id, request, "request"),
        )

    def _ask(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except CallerError:
            what += ": refused"
        self.observations.count(what)

    def jobs(self) -> dict[str, str]:
        """Return each job's status."""
        return self.backend.jobs(self.caller.caller_id)

    def violations(self) -> list[str]:
        """Return violations: while running, in histories, in end states and search results."""
        found = [stored_job(self.backend.store, self.caller.caller_id, job_id) for job_id in self.jobs()]
        jobs = [job for job in found if job is not None]
        for job in jobs:
            self.observations.count(f"end: {job.status.value}")
        states = [state_of(self.backend.store, job.job_id) for job in jobs]
        issued = {state.job_id: state.issued for state in states if state is not None}
        ends = violated_end_states(jobs, issued, self._site.texts, self.observations.publishes, self._find)
        return [
            *self.observations.violations,
            *illegal_transitions(self.backend.history(self.caller.caller_id)),
            *ends,
        ]

    def _find(self, text: str) -> list[Hit]:
        key, space = corpus_key(self.caller.caller_id, CORPUS), HashEmbedder().space
        return [hit for hit, _ in results(self.backend.index, text, key=key, space=space)]

    def close(self) -> None:
        """Close the scraper's event loop and the backend."""
        self._scraper.close()
        self.backend.close()

"""The product's own use cases, from submit to publish, as one system that the model can drive."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from indexmill.chunking.chunk import ChunkDocuments
from indexmill.chunking.worker import ChunkBatch
from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_jobs import SubmitRequest
from indexmill.contracts.http_verbs import ReplayRequest
from indexmill.contracts.identity import CallerContext, corpus_key
from indexmill.contracts.messages import ChunkTask, EmbedTask, ScrapeTask, StageResult
from indexmill.embedding.ports import Hit, SearchQuery
from indexmill.embedding.worker import EmbedBatch
from indexmill.orchestrator.accounting import CountMessages
from indexmill.orchestrator.actions.cancel import CancelJob
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.actions.retry import RetryJobs
from indexmill.orchestrator.dead_letters import BuryDeadLetters
from indexmill.orchestrator.housekeeping import Purge
from indexmill.orchestrator.relay import Relay
from indexmill.orchestrator.rescue import Rescue
from indexmill.orchestrator.results import Decider, Recorder, ResultBatch
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.orchestrator.sweep import Stores, SweepJobs
from indexmill.orchestrator.switches import SetSwitches
from indexmill.platform.consumer.sqs_batch import SqsBatch
from indexmill.platform.observability import Observability
from indexmill.scraper.robots import Robots
from indexmill.scraper.scrape import ScrapeParts
from indexmill.scraper.worker import ScrapeBatch
from indexmill.testing.blobs import InMemoryBlobs
from indexmill.testing.breakers import InMemoryBreakers
from indexmill.testing.delivery_log import InMemoryDeliveryLog
from indexmill.testing.embedder import HashEmbedder
from indexmill.testing.fetcher import InlineIsolation, InMemoryRobotsCache
from indexmill.testing.tokenizer import WordTokenizer
from indexmill.testing.vector_cache import InMemoryVectorCache
from tests.faults.model.ends import illegal, wrong_ends
from tests.faults.model.fuse import Fuse, Fused
from tests.faults.model.ground import Ground, Pile
from tests.faults.model.line import Line, Message
from tests.faults.model.places import STAGES, Work, on_the_way, work_of
from tests.faults.model.site import Site
from tests.faults.model.system import Kind, dead_line
from tests.faults.model.watch import Watch, WatchedIndex, WatchedRecorder, WatchedStore
from tests.support.events import FakeContext
from tests.support.jobs import state_of, stored_job

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


class Product:
    """Every function's use case on one ground; each side effect may be the last."""

    verbs: frozenset[str] = frozenset(("cancel", "retry", "replay", "lose", "bury"))

    def __init__(self, ground: Ground, reached: Counter[str] | None = None) -> None:
        """A caller of its own, so that examples on one database never meet. `reached` counts outcomes."""
        self.ground, self.fuse = ground, Fuse()
        self.watch = Watch(reached if reached is not None else Counter())
        number = next(_callers)
        self.caller = CallerContext(caller_id=f"model-{number}", internal=True)
        # Not random: an order that went wrong must go wrong again.
        ids = (str(uuid.UUID(int=number << 64 | each)) for each in itertools.count(1))
        self._next_id = lambda: next(ids)
        work = (*STAGES, "callbacks")
        self.lines = {name: Line(name) for name in (*work, *map(dead_line, work))}
        self._lost: set[Work | None] = set()
        self._site = Site(f"model{number}")
        self._queues: dict[str, Any] = {
            name: Fused(line, self.fuse, "send", "give_back", "delete") for name, line in self.lines.items()
        }
        store: Any = Fused(WatchedStore(ground.store, self.watch), self.fuse, *_STORE_EFFECTS)
        record: Any = WatchedRecorder(store, Decider(ground.clock, self._next_id), self.watch, _QUIET)
        relay = Relay(store, {stage: self._queues[name] for name, stage in STAGES.items()}, record)
        self._cancel = CancelJob(store, relay, ground.clock)
        self._retry = RetryJobs(store, relay, self._next_id)
        self._replay = ReplayJobs(store, relay, self._next_id)
        self._submit = SubmitJobs(store, relay, make_id=self._next_id)
        self._sweep = self._sweeper(store, record, relay)
        self._log: Any = Fused(InMemoryDeliveryLog(ground.clock), self.fuse, "write")
        given: Any = (self._scrape_parts(), self._queues["callbacks"], self._queues["scrape"])
        self._scraper = ScrapeBatch(*given)
        bury = BuryDeadLetters(store, record, relay, InMemoryBlobs(), _QUIET)
        self._handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "scrape": self._batch("scrape", ScrapeTask, self._scraper, self._log),
            "chunk": self._batch("chunk", ChunkTask, self._chunk(), self._log),
            "embed": self._batch("embed", EmbedTask, self._embed(), self._log),
            "callbacks": self._batch("callbacks", StageResult, ResultBatch(record, relay), None),
            **{dead_line(name): bury for name in work},
        }

    def _pile(self, name: str) -> Pile:
        return Pile([self.lines[name], self.lines[dead_line(name)]])

    def _sweeper(self, store: Any, record: Recorder, relay: Relay) -> SweepJobs:
        view: Any = Fused(self.ground.view, self.fuse, *_SWEEP_EFFECTS)
        queues = {stage: self._pile(name) for name, stage in STAGES.items()}
        return SweepJobs(
            stores=Stores(store, view),
            relay=relay,
            count=CountMessages(view, queues, self._pile("callbacks")),
            rescue=Rescue(view, record, relay, _QUIET),
            switches=SetSwitches(view, InMemoryBreakers(), {}, _QUIET, self.ground.clock),
            purge=Purge(view),
            observability=_QUIET,
        )

    def _batch(
        self, name: str, model: Any, handle: Any, log: Any
    ) -> Callable[[dict[str, Any]], dict[str, Any]]:
        batch = SqsBatch[Any](
            model,
            handle,
            source=self._queues[name],
            dead=self._queues[dead_line(name)],
            observability=_QUIET,
            delivery_log=log,
            clock=self.ground.clock,
        )
        return lambda event: batch(event, FakeContext())

    def _scrape_parts(self) -> ScrapeParts:
        clock = self.ground.clock
        return ScrapeParts(
            fetcher=self._site,
            robots=Robots(self._site, InMemoryRobotsCache(), clock, user_agent="IndexmillBot/1.0"),
            blobs=InMemoryBlobs(),
            isolation=InlineIsolation(),
            clock=clock,
        )

    def _chunk(self) -> ChunkBatch:
        documents = ChunkDocuments(WordTokenizer(), InMemoryBlobs())
        return ChunkBatch(documents, self._queues["callbacks"], self.ground.clock)

    def _embed(self) -> EmbedBatch:
        index: Any = Fused(
            WatchedIndex(self.ground.index, self.ground.store, self.watch), self.fuse, "publish"
        )
        return EmbedBatch(
            index,
            HashEmbedder(),
            InMemoryBlobs(),
            self._queues["callbacks"],
            InMemoryVectorCache(),
            self.ground.clock,
        )

    def submit(self, kind: Kind) -> None:
        """Submit a page of its own, or the last one once more."""
        url = self._site.page(kind)
        forced = kind in ("same", "changed")
        request = SubmitRequest(url=url, corpus_name=CORPUS, force=forced)
        answer = self._submit(self.caller, request, "request")
        self.watch.note("deduplicated", answer.deduplicated)

    def handle(self, name: str, picked: Sequence[Message]) -> set[str]:
        """Run the queue's function."""
        answer = self._handlers[name](self.lines[name].event(picked))
        kept = {item["itemIdentifier"] for item in answer["batchItemFailures"]}
        leaving = [message for message in picked if message.id not in kept]
        if name in map(dead_line, STAGES):
            self._check_told({work_of(name, message) for message in leaving})
        return {message.id for message in leaving}

    def _check_told(self, buried: set[Work | None]) -> None:
        """A job whose message was set aside no longer waits for it."""
        waiting = buried & self.ground.outside(self.caller.caller_id)
        self.watch.wrong += [f"{work} is dead and its job was not told" for work in waiting]

    def lose(self, name: str, message: Message) -> None:
        """Let a message vanish, behind everybody's back."""
        self.lines[name].delete([message.id])
        self._lost.add(work_of(name, message))

    def stranded(self) -> list[str]:
        """Return which jobs wait for a message that is nowhere, though none of theirs was lost."""
        out = self.ground.outside(self.caller.caller_id)
        return [f"{work} has no message" for work in out - on_the_way(self.lines) - self._lost]

    def tick(self, seconds: int) -> None:
        """Let time pass and run the sweeper."""
        self.ground.clock.tick(seconds)
        self.ground.age(seconds)
        done = self._sweep()
        self.watch.note("rescued: lost", done["lost"])
        self.watch.note("rescued: silent", done["rescued"])

    def cancel(self, job_id: str) -> None:
        """Cancel, unless it is too late for that."""
        self._ask("canceled", lambda: self._cancel(self.caller, job_id, "model"))

    def retry(self, job_id: str) -> None:
        """Retry, if it failed."""
        self._ask("retried", lambda: self._retry.one(self.caller, job_id))

    def replay(self, job_id: str, *, stored: bool) -> None:
        """Replay, if it ended: with the page as it is, or as it was stored."""
        request = ReplayRequest(source="stored" if stored else "fetch")
        self._ask(
            f"replayed: {request.source}",
            lambda: self._replay.replay(self.caller, job_id, request, "request"),
        )

    def _ask(self, what: str, verb: Callable[[], object]) -> None:
        try:
            verb()
        except CallerError:
            what += ": refused"
        self.watch.note(what)

    def jobs(self) -> dict[str, str]:
        """Return each job's status."""
        return self.ground.jobs(self.caller.caller_id)

    def wrongs(self) -> list[str]:
        """Check what was seen on the way, the history's path, and that done means found by its sentence."""
        found = [stored_job(self.ground.store, self.caller.caller_id, job_id) for job_id in self.jobs()]
        jobs = [job for job in found if job is not None]
        for job in jobs:
            self.watch.note(f"end: {job.status.value}")
        states = [state_of(self.ground.store, job.job_id) for job in jobs]
        issued = {state.job_id: state.issued for state in states if state is not None}
        ends = wrong_ends(jobs, issued, self._site.texts, self.watch.shown, self._find)
        return [*self.watch.wrong, *illegal(self.ground.history(self.caller.caller_id)), *ends]

    def _find(self, text: str) -> list[Hit]:
        key, space = corpus_key(self.caller.caller_id, CORPUS), HashEmbedder().space
        query = SearchQuery(corpus_key=key, space=space, top_k=10, text=text, vector=None)
        return list(self.ground.index.search(query))

    def close(self) -> None:
        """Close the scraper's loop."""
        self._scraper.close()
        self.ground.close()

"""The product's own use cases, from submit to publish, as one system that the model can drive."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_jobs import SubmitRequest
from indexmill.contracts.identity import CallerContext, corpus_key
from indexmill.contracts.messages import EmbedTask, ScrapeTask, StageResult
from indexmill.embedding.embed import EmbedBatch
from indexmill.embedding.ports import SearchQuery, VectorIndex
from indexmill.orchestrator.accounting import CountMessages
from indexmill.orchestrator.housekeeping import Purge
from indexmill.orchestrator.ports import JobStore
from indexmill.orchestrator.relay import CallRelay, Relay
from indexmill.orchestrator.rescue import Rescue
from indexmill.orchestrator.results import Decider, Recorder, ResultBatch
from indexmill.orchestrator.submit import SubmitJobs
from indexmill.orchestrator.sweep import Stores, SweepJobs
from indexmill.orchestrator.switches import SetSwitches
from indexmill.orchestrator.verb_ports import JobVerbs
from indexmill.platform.observability import Observability
from indexmill.platform.sqs_batch import SqsBatch
from indexmill.scraper.robots import Robots
from indexmill.scraper.scrape import ScrapeParts
from indexmill.scraper.work import ScrapeBatch
from indexmill.testing.blobs import InMemoryBlobs
from indexmill.testing.breakers import InMemoryBreakers
from indexmill.testing.clock import FrozenClock
from indexmill.testing.embedder import HashEmbedder
from indexmill.testing.fetcher import InlineIsolation, InMemoryFetcher, InMemoryRobotsCache
from indexmill.testing.releases import InMemoryReleases
from indexmill.testing.shelf import InMemoryShelf
from tests.faults.model.fuse import Fuse, Fused
from tests.faults.model.line import Line, Message
from tests.support.events import FakeContext
from tests.support.jobs import TwinChunker

CORPUS: Final = "model"
STATES: Final = ("pending", "scraping", "chunking", "embedding", "done", "failed")
_STORE_EFFECTS: Final = ("submit", "admit_all", "apply", "claim", "mark_sent", "mark_failed")
_SWEEP_EFFECTS: Final = ("confirm", "send_again", "purge")
_EXPECTED: Final = frozenset(("poison_message", "canceled"))
"""Nothing is wrong with any page: a job fails only when its worker died often, or somebody canceled it."""
_callers = itertools.count(1)
_QUIET: Final = Observability("model", level="CRITICAL")

History = list[tuple[str, int, str | None, str]]


@dataclass(frozen=True)
class Ground:
    """What differs between the twins and Postgres."""

    store: JobStore
    verbs: JobVerbs
    view: Any
    """The sweeper's, who admits everybody as well."""
    index: VectorIndex
    clock: FrozenClock
    age: Callable[[int], None]
    """Let seconds pass in the store."""
    jobs: Callable[[str], dict[str, str]]
    """Status by job id, of one caller."""
    history: Callable[[str], History]
    """Transitions in order, of one caller's jobs."""
    close: Callable[[], None]


@dataclass(frozen=True)
class Pile:
    """What the sweeper counts of a queue."""

    line: Line

    def messages(self) -> int:
        """Return how many there are."""
        return len(self.line.messages)


class Product:
    """Every function's use case on one ground; each side effect may be the last."""

    verbs: frozenset[str] = frozenset(("cancel", "retry", "lose"))

    def __init__(self, ground: Ground) -> None:
        """A caller of its own, so that examples on one database never meet."""
        self.ground, self.fuse = ground, Fuse()
        self.caller = CallerContext(caller_id=f"model-{next(_callers)}", internal=True)
        self.lines = {name: Line(name) for name in ("scrape", "embed", "callbacks")}
        self.sources: dict[str, str] = {}
        self._ids = (f"{self.caller.caller_id}-{number:05}" for number in itertools.count(1))
        self._numbers = itertools.count(1)
        self._fetcher = InMemoryFetcher()
        queues = {
            name: Fused(line, self.fuse, "send", "give_back", "delete") for name, line in self.lines.items()
        }
        store: Any = Fused(ground.store, self.fuse, *_STORE_EFFECTS)
        relay = Relay(store, {"scraping": queues["scrape"], "embedding": queues["embed"]})
        record = Recorder(store, Decider(ground.clock, self._next_id), _QUIET)
        chunker: Any = Fused(TwinChunker(), self.fuse, "chunk")
        calls = CallRelay(relay, chunker, record, 50_000)
        self._verbs: Any = Fused(ground.verbs, self.fuse, "cancel", "retry")
        self._calls = calls
        self._submit = SubmitJobs(store, relay, make_id=self._next_id)
        self._sweep = self._sweeper(store, record, calls)
        self._notes: Any = Fused(InMemoryReleases(ground.clock), self.fuse, "write")
        given: Any = (self._scrape_parts(), queues["callbacks"], queues["scrape"])
        self._scraper = ScrapeBatch(*given)
        self._handlers: dict[str, SqsBatch[Any]] = {
            "scrape": self._batch(ScrapeTask, self._scraper, queues["scrape"], self._notes),
            "embed": self._batch(EmbedTask, self._embed(queues["callbacks"]), queues["embed"], self._notes),
            "callbacks": self._batch(
                StageResult, ResultBatch(record, calls, ground.clock), queues["callbacks"], None
            ),
        }

    def _sweeper(self, store: Any, record: Recorder, calls: CallRelay) -> SweepJobs:
        view: Any = Fused(self.ground.view, self.fuse, *_SWEEP_EFFECTS)
        queues = {"scraping": Pile(self.lines["scrape"]), "embedding": Pile(self.lines["embed"])}
        return SweepJobs(
            stores=Stores(store, view),
            relay=calls,
            count=CountMessages(view, queues, Pile(self.lines["callbacks"])),
            rescue=Rescue(view, record, calls, _QUIET),
            switches=SetSwitches(view, InMemoryBreakers(), {}, _QUIET, self.ground.clock),
            purge=Purge(view),
            observability=_QUIET,
        )

    def _batch(self, model: Any, handle: Any, source: Any, notes: Any) -> SqsBatch[Any]:
        return SqsBatch(
            model,
            handle,
            source=source,
            dead=Line("dead"),
            observability=_QUIET,
            notes=notes,
            clock=self.ground.clock,
        )

    def _scrape_parts(self) -> ScrapeParts:
        clock = self.ground.clock
        return ScrapeParts(
            fetcher=self._fetcher,
            robots=Robots(self._fetcher, InMemoryRobotsCache(), clock, user_agent="IndexmillBot/1.0"),
            blobs=InMemoryBlobs(),
            isolation=InlineIsolation(),
            clock=clock,
        )

    def _embed(self, callbacks: Any) -> EmbedBatch:
        index: Any = Fused(self.ground.index, self.fuse, "publish")
        return EmbedBatch(
            index, HashEmbedder(), InMemoryBlobs(), callbacks, InMemoryShelf(), self.ground.clock
        )

    def _next_id(self) -> str:
        # Not random: an order that went wrong must go wrong again.
        return next(self._ids)

    def submit(self) -> None:
        """Submit a page with a sentence of its own; each third one is the one before once more."""
        number = next(self._numbers)
        again = number % 3 == 0
        name = f"{self.caller.caller_id}-{number - again}"
        url = f"https://example.com/{name}"
        sentence = f"Sentence {name.replace('-', '')} stands here."
        self._fetcher.pages[url] = f"<main><p>{sentence}</p></main>"
        self.sources[url] = sentence
        self._submit(self.caller, SubmitRequest(url=url, corpus_name=CORPUS, force=again), "request")

    def handle(self, name: str, picked: Sequence[Message]) -> set[str]:
        """Run the queue's function."""
        answer = self._handlers[name](self.lines[name].event(picked), FakeContext())
        kept = {item["itemIdentifier"] for item in answer["batchItemFailures"]}
        return {message.id for message in picked} - kept

    def tick(self, seconds: int) -> None:
        """Let time pass and run the sweeper."""
        self.ground.clock.tick(seconds)
        self.ground.age(seconds)
        self._sweep()

    def cancel(self, job_id: str) -> None:
        """Cancel, unless it is too late for that."""
        with suppress(CallerError):
            outcome = self._verbs.cancel(self.caller.caller_id, job_id, "model", self.ground.clock.now())
            self._calls.run(outcome.outbox)

    def retry(self, job_id: str) -> None:
        """Retry, if it failed."""
        with suppress(CallerError):
            self._calls.run(self._verbs.retry(self.caller.caller_id, job_id, self._next_id()).outbox)

    def jobs(self) -> dict[str, str]:
        """Return each job's status."""
        return self.ground.jobs(self.caller.caller_id)

    def wrongs(self) -> list[str]:
        """Check the history's path, and that done means found by its own sentence, once."""
        return [*_illegal(self.ground.history(self.caller.caller_id)), *self._wrong_ends()]

    def _wrong_ends(self) -> list[str]:
        wrong: list[str] = []
        found = [self.ground.store.get(self.caller.caller_id, job_id) for job_id in self.jobs()]
        jobs = [job for job in found if job is not None]
        done = {job.url for job in jobs if job.status == "done"}
        for job in jobs:
            if job.status != "done" and (job.error is None or job.error.code not in _EXPECTED):
                wrong.append(f"{job.job_id} ended with {job.error}")
            expected = int(job.url in done)
            query = SearchQuery(
                corpus_key=corpus_key(self.caller.caller_id, CORPUS),
                space=HashEmbedder().space,
                top_k=10,
                text=self.sources[job.url],
                vector=None,
            )
            hits = self.ground.index.search(query)
            own = [hit for hit in hits if hit.source_url == job.url]
            if len(own) != expected or (own and hits[0] != own[0]):
                wrong.append(f"{job.job_id} is {job.status} and its sentence is found {len(own)} times")
        return wrong

    def close(self) -> None:
        """Close the scraper's loop."""
        self._scraper.close()
        self.ground.close()


def _illegal(history: History) -> list[str]:
    """Return what is wrong with the paths: a step that does not start where the last one ended, or twice."""
    at: dict[str, str] = {}
    attempts: dict[str, int] = {}
    wrong = []
    for job_id, attempt, before, after in history:
        again = attempt == attempts.get(job_id, 1) + 1 and before == "failed"
        forward = before is None or after == "failed" or STATES.index(after) > STATES.index(before)
        if before != at.get(job_id) or not (forward or again):
            wrong.append(f"{job_id}: {before} -> {after} in attempt {attempt}, after {at.get(job_id)}")
        at[job_id], attempts[job_id] = after, attempt
    counts = Counter((job_id, attempt, after) for job_id, attempt, _, after in history)
    return wrong + [f"twice: {step}" for step, count in counts.items() if count > 1]

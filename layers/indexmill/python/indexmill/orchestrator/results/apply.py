"""Application of results: one batch, one transaction, then the messages that follow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from indexmill.contracts.cost import SHARED, Amounts, Prices, Spent, total
from indexmill.contracts.errors import CONTENT_LOST, ErrorCode, TransientError
from indexmill.contracts.http_deletion import Erased
from indexmill.contracts.job import JobError, JobStatus
from indexmill.contracts.messages import Retrying, ScrapeResult, StageResult
from indexmill.contracts.pipeline import BY_NAME, FIRST
from indexmill.orchestrator.admission.admit import admit, defer, release
from indexmill.orchestrator.admission.dependencies import settle_dependents
from indexmill.orchestrator.crawling.follow import ReadPage, follow, read_page
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.results.decide import Decider
from indexmill.orchestrator.results.duplicates import save_duplicates, with_originals
from indexmill.orchestrator.stages.registry import renewed
from indexmill.orchestrator.stages.scraping import from_stored
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.orchestrator.store.results import Change, Published, Transition, Verdict
from indexmill.orchestrator.store.rows import JobState, OutboxRow
from indexmill.platform.consumer.deliveries import Delivery, Done, Outcome, Retry
from indexmill.platform.meter import METER, Meter, sends, split
from indexmill.platform.observability import Observability

_EARLY_WAIT_S = 2.0
_DATABASE_WAIT_S = 5.0


@dataclass(slots=True)
class ApplyResults:
    """The callback queue's use case."""

    record: Recorder
    relay: Relay

    def __call__(self, deliveries: Sequence[Delivery[StageResult]]) -> list[Outcome]:
        """Apply the batch in one transaction and send what follows; results ahead of their job wait.

        While Postgres is unavailable the whole batch waits. A process that dies between the commit and the
        send leaves claimed rows, which the sweeper sends when their claim has expired.
        """
        results = [delivery.message for delivery in deliveries]
        try:
            changes = self.record.changes(results)
        except TransientError as error:
            return [Retry(_DATABASE_WAIT_S, error.code) for _ in results]
        except Exception:
            if len(deliveries) > 1:
                # One result fails the batch: each alone, so that the others are applied.
                return [outcome for delivery in deliveries for outcome in self([delivery])]
            self.record.observability.log.exception("result.failed", extra=_ids(results[0]))
            return [Retry(_DATABASE_WAIT_S, ErrorCode.INTERNAL_ERROR)]
        self.relay.send([row for change in changes for row in change.outbox])
        return [
            Retry(_EARLY_WAIT_S, "early") if change.verdict is Verdict.EARLY else Done() for change in changes
        ]


@dataclass(frozen=True, slots=True)
class Recorder:
    """Applies results to the store, logs and counts them; returns the messages that follow."""

    store: JobStore
    decide: Decider
    observability: Observability
    meter: Meter = METER

    def __call__(self, results: Sequence[StageResult]) -> list[OutboxRow]:
        """Apply and return the new outbox rows, which this process has claimed."""
        return [row for change in self.changes(results) for row in change.outbox]

    def changes(self, results: Sequence[StageResult]) -> list[Change]:
        """Apply and return the change of each result, in order."""
        due = self.meter.due()
        changes = self.store.transaction(lambda tx: apply_results(tx, results, self.decide, due))
        if any(change.moves for change in changes):
            self.meter.paid(due)
        for result, change in zip(results, changes, strict=True):
            self._report(result, change)
            if result.spent is not None and change.verdict in (Verdict.REDISPATCH, Verdict.CONTINUE):
                # Work that moves no job is on no receipt by itself. A late result may be a copy of one that
                # counts already, so nothing of it is added.
                self.meter.add({name: getattr(result.spent, name) for name in SHARED})
        return changes

    def _report(self, result: StageResult, change: Change) -> None:
        fields = _ids(result)
        log, elapsed_ms = self.observability.log, result.elapsed_ms
        if change.error is not None:
            log.warning("stage.failed", extra={**fields, **_why(change.error), "elapsed_ms": elapsed_ms})
        else:
            verdict = change.verdict.name.lower()
            log.info("result.applied", extra={**fields, "verdict": verdict, "elapsed_ms": elapsed_ms})
        if change.error is not None:
            self.observability.count("jobs_failed_total", stage=result.stage)


def _ids(result: StageResult) -> dict[str, object]:
    """Return the fields of every line about a result."""
    known: dict[str, object] = {
        "job_id": result.job_id,
        "stage": result.stage,
        "attempt": result.attempt,
    }
    return known | ({"request_id": result.request_id} if result.request_id else {})


def _why(error: JobError) -> dict[str, object]:
    """Return an error's fields for the log, without those that say nothing; `message` is the log's own."""
    why = {"code": error.code, "cause": error.cause, "tries": error.attempts, "reason": error.message}
    return {name: value for name, value in why.items() if value is not None}


def apply_results(
    tx: JobsTx, results: Sequence[StageResult], decide: Decider, due: Amounts | None = None
) -> list[Change]:
    """Decide about each result in order and write every change; a result that was received before is late.

    The jobs that move share what is `due` of this invocation.

    New messages are claimed by this process. Those of jobs that are admitted in place of ended ones, and
    those that are redispatched, are in the last change.
    """
    states = tx.lock_jobs(sorted({result.job_id for result in results if result.job_id}))
    states |= _priced(tx, states.values(), decide.prices)
    received = tx.receive([result.message_id for result in results])
    states, named = with_originals(tx, with_published(tx, states, results), results)
    batch = ResultBatch(states, received, decide)
    changes = [batch.take(result) for result in results]
    if batch.early:
        # An early result must count when it is delivered again.
        tx.forget(batch.early)
    if batch.stale:
        tx.note_stale(batch.stale)
    if batch.transitions:
        tx.save_results(batch.changes, charged(batch.transitions, due or {}))
    if batch.retries:
        tx.save_retries(batch.retries)
        defer(tx, batch.states, batch.retries)
    _save_documents(tx, batch)
    save_duplicates(tx, batch.states, batch.changes, named)
    grown = follow(tx, batch.pages, decide.make_id)
    again = _read_again(tx, batch)
    ended = [job_id for job_id in batch.ended() if job_id not in again]
    if awaited := [job_id for job_id in ended if batch.states[job_id].has_dependents]:
        settle_dependents(tx, awaited)
    more = [_redispatch(tx, batch.states[job_id], each) for job_id, each in batch.redispatch.items()]
    if batch.erased:
        # Few jobs delete: what they need is loaded then.
        from indexmill.orchestrator.results.deletions import erased_part

        more += [row for each in batch.erased for row in erased_part(tx, *each, decide.make_id())]
    callers = {batch.states[job_id].target.caller_id for job_id in batch.ended()} | grown
    if tx.limits.rates.is_limited:
        callers |= set(release(tx))
    if callers:
        more += admit(tx, sorted(callers), batch.done())
    if more:
        changes[-1] = replace(changes[-1], outbox=(*changes[-1].outbox, *more))
    return changes


def charged(transitions: Sequence[Transition], due: Mapping[str, float]) -> list[Transition]:
    """Return the transitions, each with its share of what is `due` and of the sends of their messages.

    What was not metered stays unknown.
    """
    bodies: dict[str, list[int]] = defaultdict(list)
    for transition in transitions:
        for row in transition.change.outbox:
            bodies[row.stage].append(len(row.payload.encode()))
    messages = {stage: split(sends(sizes), sizes)[0] for stage, sizes in bodies.items()}
    own = split(due, [1] * len(transitions))
    found = []
    for transition, share in zip(transitions, own, strict=True):
        spent = transition.spent
        if spent is not None:
            spent = total(spent, share, *(messages[row.stage] for row in transition.change.outbox))
        found.append(replace(transition, spent=spent))
    return found


def _priced(tx: JobsTx, states: Iterable[JobState], prices: Prices) -> dict[str, JobState]:
    """Return those of the states that have a budget in money, with what they cost before."""
    bounded = {state.job_id: state for state in states if state.budget and state.budget.max_cost_usd}
    if not bounded:
        return {}
    spent = tx.spent(list(bounded))
    return {
        job_id: replace(state, spent_usd=prices.of(spent.get(job_id, Spent())))
        for job_id, state in bounded.items()
    }


def _save_documents(tx: JobsTx, batch: ResultBatch) -> None:
    if fences := batch.fences():
        tx.raise_fences(fences)
    if kept := batch.kept():
        tx.keep_published(kept)
    if gone := batch.gone():
        tx.mark_stale(gone)


def _read_again(tx: JobsTx, batch: ResultBatch) -> list[str]:
    """Give jobs whose text or chunks are lost another attempt, once: it reads the raw content, or the page.

    Returns them; they are pending then, and admitted with the others of their callers.
    """
    found = []
    for job_id, change in batch.changes.items():
        state, error = batch.states[job_id], change.error
        if error is None or error.code not in CONTENT_LOST or error.stage == FIRST or state.attempt > 1:
            continue
        locked, payload = tx.lock_job(state.target.caller_id, job_id), tx.kept_payloads(job_id).get(FIRST)
        if locked is None or payload is None:
            continue
        ids = (batch.decide.make_id(), state.attempt + 1, 0)
        row = renewed(state, FIRST, from_stored(payload, locked.stored), ids)
        tx.restart_job(row, None, None, blocked=False)
        found.append(job_id)
    return found


def _redispatch(tx: JobsTx, state: JobState, change: Change) -> OutboxRow:
    """Commit a copy of the current stage's message, which was fenced out, with a fresh generation."""
    stage = BY_NAME[state.status.value].name
    ids = (change.redispatch or "", state.attempt, change.generation or 0)
    row = renewed(state, stage, tx.kept_payloads(state.job_id).get(stage), ids)
    tx.redispatch(row, change.generation)
    return row


@dataclass(slots=True)
class ResultBatch:
    """Decides results in order, each on the state that the one before left."""

    states: dict[str, JobState]
    """Locked jobs by id."""
    received: set[str]
    """Message ids that were not received before."""
    decide: Decider
    transitions: list[Transition] = field(default_factory=list)
    changes: dict[str, Change] = field(default_factory=dict)
    """Of the jobs that move, all of the batch together, by id."""
    retries: dict[str, Retrying] = field(default_factory=dict)
    """Until when a job's stage waits, by job id."""
    redispatch: dict[str, Change] = field(default_factory=dict)
    """Stages whose message is redispatched, by job id."""
    erased: list[tuple[JobState, Erased]] = field(default_factory=list)
    """Parts of deletions that are done."""
    stale: list[StageResult] = field(default_factory=list)
    """Of earlier attempts."""
    pages: list[ReadPage] = field(default_factory=list)
    """Pages of crawls that were read."""
    early: list[str] = field(default_factory=list)
    """Message ids that must not count yet."""

    def take(self, result: StageResult) -> Change:
        """Decide about one result and note what follows."""
        state = self.states.get(result.job_id or "")
        if result.message_id not in self.received:
            return Change(Verdict.LATE, state.status if state else None)
        self.received.discard(result.message_id)
        change = self.decide(state, result)
        if change.verdict is Verdict.EARLY:
            self.early.append(result.message_id)
        elif state is not None and result.attempt < state.attempt:
            self.stale.append(result)
        elif state is not None and change.redispatch is not None:
            self.redispatch[state.job_id] = change
        elif state is not None and change.erased is not None:
            self.erased.append((state, change.erased))
        elif state is not None and change.retrying is not None:
            self.retries[state.job_id] = change.retrying
        elif state is not None and change.moves:
            self.retries.pop(state.job_id, None)
            self.redispatch.pop(state.job_id, None)
            self._move(state, result, change)
            if (page := read_page(state, result)) is not None:
                self.pages.append(page)
        return change

    def done(self) -> list[str]:
        """Return the jobs whose chunks were processed and are published now."""
        return [
            job_id
            for job_id, change in self.changes.items()
            if change.status is JobStatus.DONE and change.unchanged is None
        ]

    def kept(self) -> dict[str, str]:
        """Return the jobs that found their document unchanged, by document id."""
        return {
            self.states[job_id].target.document_id: job_id
            for job_id, change in self.changes.items()
            if change.unchanged is not None
        }

    def gone(self) -> dict[str, str]:
        """Return the jobs of the published versions whose page is gone, by document id, to be marked."""
        states = [self.states[job_id] for job_id, each in self.changes.items() if each.change == "removed"]
        return {
            state.target.document_id: state.previous.job_id
            for state in states
            if state.mark_stale and state.previous is not None
        }

    def ended(self) -> list[str]:
        """Return the jobs that are done or failed now."""
        return [job_id for job_id, change in self.changes.items() if change.ended]

    def fences(self) -> dict[str, int]:
        """Return, by document id, the generation up to which nothing may be published any more."""
        found: dict[str, int] = {}
        for job_id, change in self.changes.items():
            state = self.states[job_id]
            ends = change.status is JobStatus.FAILED or (change.ended and state.original is not None)
            if ends and state.issued is not None:
                document = state.target.document_id
                found[document] = max(state.issued, found.get(document, 0))
        return found

    def _move(self, state: JobState, result: StageResult, change: Change) -> None:
        # A stage that runs elsewhere spends nothing; a worker of the release before does not say.
        spent = result.spent.amounts() if result.spent else None if result.worker else {}
        self.transitions.append(Transition(state, result, change, _cause(result, change), spent))
        whole = self.changes[state.job_id] = change.after(self.changes.get(state.job_id))
        self.states[state.job_id] = replace(
            state,
            status=change.status or state.status,
            title=whole.title or state.title,
            content_sha256=whole.facts.get("content_sha256") or state.content_sha256,
            page=whole.facts.get("page") or state.page,
            issued=change.generation if change.generation is not None else state.issued,
            spent_usd=self.decide.cost_after(state, result),
        )


def _cause(result: StageResult, change: Change) -> str:
    """Return why a job moves, for its history."""
    if change.error is not None and change.error.code == ErrorCode.BUDGET_EXCEEDED:
        return f"{result.stage} exceeded the budget"
    if change.status is JobStatus.DONE and result.status == "failed":
        return f"{result.stage} published, then {result.status}"
    if change.duplicate_of is not None:
        return f"{result.stage} found a duplicate"
    if change.unchanged is not None:
        return f"{result.stage} unchanged: {change.unchanged}"
    return f"{result.stage} {result.status}"


def with_published(
    tx: JobsTx, states: dict[str, JobState], results: Sequence[StageResult]
) -> dict[str, JobState]:
    """Return the states, with what is published for those whose result depends on it.

    A job whose embedding failed may have been published before its worker crashed. A document that was found
    unchanged may have been published again since its job was submitted.
    """
    asking = {result.job_id for result in results if _depends(result, states.get(result.job_id or ""))}
    chosen = [state for job_id, state in states.items() if job_id in asking]
    return states | {state.job_id: state for state in with_visibility(tx, chosen)}


def with_visibility(tx: JobsTx, states: Sequence[JobState]) -> list[JobState]:
    """Return the states, with what search sees of their documents, which are locked in one statement."""
    wanted = [state.target for state in states if state.issued is not None or state.previous is not None]
    if not wanted:
        return list(states)
    published = tx.lock_documents(wanted)
    return [_seen(state, published.get(state.target.document_id)) for state in states]


def _depends(result: StageResult, state: JobState | None) -> bool:
    if state is None:
        return False
    if isinstance(result, ScrapeResult):
        return result.document is not None and result.document.unchanged is not None
    return BY_NAME[result.stage].publishes and result.status == "failed" and state.issued is not None


def _seen(state: JobState, published: Published | None) -> JobState:
    if published is None:
        return state
    previous, issued = state.previous, state.issued
    return replace(
        state,
        visible=issued is not None and (published.generation or 0) >= issued,
        searchable_at=published.indexed_at if published.generation == issued else None,
        still_published=previous is not None
        and previous.job_id == published.job_id
        and not published.contested,
    )

"""Benchmark of what receipts cost: CPU per job of everything that is done for its receipt alone.

    python -m tests.perf.receipts [--batch 1 3 10] [--rounds 300]

One job is a share of a submit, of three stages and of their results, in batches of `--batch`. Measured is
only what a release without receipts does not do: begin and end of invocations, the count of requests, shares,
their JSON in the results, its parsing, and the JSON for the database. The fastest of five repetitions counts.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence

from psycopg.types.json import Jsonb, JsonbDumper

from indexmill.contracts.cost import Amounts, total
from indexmill.contracts.job import JobStatus
from indexmill.contracts.messages import StageResult, Target, read, with_spent, write
from indexmill.orchestrator.results.apply import charged
from indexmill.orchestrator.store.results import Change, Transition
from indexmill.orchestrator.store.rows import JobState, OutboxRow
from indexmill.platform.meter import Meter, first_messages, sends, split
from tests.support.jobs import URL, chunked, embedded, scraped

FACTS = {"chunks": 20, "chunks_embedded": 20, "chunks_removed": 1, "tokens": 4000, "tokens_embedded": 4000}
DUMPER = JsonbDumper(Jsonb)


def worker(meter: Meter, bodies: Sequence[str]) -> list[str]:
    """Do what a worker does for the receipts of one batch; return its results."""
    meter.begin(bodies)
    for _ in bodies:
        meter.request("s3", "PutObject")
    amounts = total(meter.due(), sends([len(body) for body in bodies]))
    meter.paid(amounts)
    shares = split(amounts, [20] * len(bodies))
    results = [with_spent(body, total(FACTS, share)) for body, share in zip(bodies, shares, strict=True)]
    meter.request("sqs", "SendMessageBatch")
    meter.end()
    return results


def orchestrator(meter: Meter, results: Sequence[str], transitions: Sequence[Transition]) -> None:
    """Do what the Orchestrator does for the receipts of one batch of results, beside reading them."""
    meter.begin(results)
    due = meter.due()
    for transition in charged(transitions, due):
        kept(transition.spent)
    meter.paid(due)
    meter.paid(sends([len(row.payload) for transition in transitions for row in transition.change.outbox]))
    meter.request("sqs", "SendMessageBatch")
    meter.end()


def submit(meter: Meter, jobs: int) -> None:
    """Do what a submit of so many jobs does for their receipts."""
    meter.begin_request()
    kept(split(meter.due(), [1] * jobs)[0])
    kept(first_messages(jobs))
    meter.end()


def kept(spent: Amounts | None) -> None:
    """Make the JSON that is sent to the database."""
    DUMPER.dump(Jsonb(spent))


def transition(result: StageResult) -> Transition:
    """Return what the Orchestrator makes of a result."""
    row = OutboxRow("m", "j", 1, "chunking", "x" * 3000)
    target = Target(caller_id="c", corpus_name="n", corpus_key="k", document_id="d", url=URL)
    state = JobState("j", JobStatus.SCRAPING, 1, target, 1)
    spent = result.spent.amounts() if result.spent else None
    return Transition(state, result, Change(status=JobStatus.CHUNKING, outbox=(row,)), "cause", spent)


def cpu_us(act: Callable[[], object], rounds: int) -> float:
    """Return microseconds of CPU of one call: a machine that does something else only adds to them."""
    found = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(rounds):
            act()
        found.append((time.process_time() - began) / rounds * 1e6)
    return min(found)


def per_job_us(batch: int, rounds: int) -> float:
    """Return microseconds of CPU per job."""
    meter = Meter()
    whole = cpu_us(lambda: submit(meter, batch), rounds)
    for make in (scraped, chunked, embedded):
        bodies = [write(make(f"job-{at}")) for at in range(batch)]
        results = worker(meter, bodies)
        transitions = [transition(read(StageResult, body)) for body in results]
        whole += cpu_us(lambda bodies=bodies: worker(meter, bodies), rounds)  # type: ignore[misc]
        whole += cpu_us(lambda results=results: [read(StageResult, body) for body in results], rounds)  # type: ignore[misc]
        # Without receipts the rest of a result is read too.
        whole -= cpu_us(lambda bodies=bodies: [read(StageResult, body) for body in bodies], rounds)  # type: ignore[misc]
        whole += cpu_us(lambda given=(results, transitions): orchestrator(meter, *given), rounds)  # type: ignore[misc]
    return whole / batch


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 3, 10])
    parser.add_argument("--rounds", type=int, default=300)
    chosen = parser.parse_args()
    os.environ.setdefault("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512")
    for batch in chosen.batch:
        print(f"batches of {batch}: {per_job_us(batch, chosen.rounds):.0f} µs of CPU per job")


if __name__ == "__main__":
    main()

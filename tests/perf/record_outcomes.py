"""Outcome recorder: what seeded orders of events end in, on one commit and on another.

    python -m tests.perf.record_outcomes record OUT [--orders 500] [--seed 1] [--first 0]
    python -m tests.perf.record_outcomes compare BEFORE AFTER

`record` runs orders of user actions (submits of all kinds, cancel, retry, replay), deliveries (in any order,
again, lost, to dead letters), crashes at commits, sends and publishes, sweeps and time through the model's
system (tests/faults/model) on an embedded Postgres. It writes one line of JSON for each: answers and error
codes, jobs as GET shows them, rows of jobs, job_history and documents, kept payloads, dead letters, and what
search finds. Ids and times are left out, generations are given as ranks. 500 orders take some five minutes of
CPU time.

`compare` exits with 1 and prints the differences. Two records of one commit are equal; so are those before
and after a change that no caller can see.

The same orders run where Chunking is called synchronously (up to commit 0ceb7dd) and where it has a queue.
Decisions are drawn by keyed hashes, so one more message shifts none of them, and chunk work is done before
the next step on both sides. Its faults are named by stage: "the chunk work of job 3 crashes or is lost at
its nth try". That gives two kinds of orders:

* Without a fault in chunk work the records must be equal to the byte.
* With one they cannot be: which process dies, how often it tries again and by which code it gives up belong
  to the transport (a crashing call is `max_retries_exceeded`, a crashing message `poison_message`). There the
  jobs' end states, their failed stages and the searchable content must agree.

To record an older commit, copy tests/perf/record_outcomes.py and tests/perf/outcomes/ into a worktree of it:
names that differ are in tests/perf/outcomes/adapter.py alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

_CLASSES: Final = (("calm", 0.25), ("faults", 0.5), ("chunk_faults", 0.25))
_SHOWN: Final = 12


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the orders and write what they end in")
    recording.add_argument("out", type=Path)
    recording.add_argument("--orders", type=int, default=500)
    recording.add_argument("--first", type=int, default=0)
    recording.add_argument("--seed", type=int, default=1)
    comparing = commands.add_parser("compare", help="print the differences of two records")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "record":
        record(chosen.out, chosen.seed, range(chosen.first, chosen.first + chosen.orders))
    else:
        sys.exit(compare(chosen.before, chosen.after))


def record(out: Path, seed: int, orders: range) -> None:
    """Run the orders and write one line for each."""
    from tests.perf.outcomes.adapter import migrated_database
    from tests.perf.outcomes.draws import Draws
    from tests.perf.outcomes.order import Order
    from tests.perf.outcomes.rows import outcome

    ends: Counter[str] = Counter()
    with migrated_database() as url, out.open("w") as lines, redirect_stdout(None):
        for number in orders:
            draws = Draws(seed, number)
            order = Order(draws, draws.weighted(_CLASSES, "class"))
            order.run(url)
            found = outcome(order)
            order.system.close()
            lines.write(json.dumps(found, sort_keys=True) + "\n")
            ends.update(job["status"] for job in found["jobs"])
            ends["orders with a chunk fault"] += found["chunk_faults"]
    print(f"{len(orders)} orders, {dict(sorted(ends.items()))}")


def compare(before: Path, after: Path) -> int:
    """Print how the records differ; return the exit status."""
    from tests.perf.outcomes.comparison import differences

    olds, news = _read(before), _read(after)
    if olds.keys() != news.keys():
        print(f"Other orders: {len(olds)} before, {len(news)} after.")
        return 1
    differing = {order: differences(olds[order], news[order]) for order in olds}
    differing = {order: found for order, found in differing.items() if found}
    for order, found in list(differing.items())[:_SHOWN]:
        print(f"order {order} ({olds[order]['class']}), {len(found)} differences:")
        for line in found[:_SHOWN]:
            print(f"  {line}")
    loose = sum(record["chunk_faults"] for record in olds.values())
    print(f"{len(olds)} orders ({loose} of them with a fault in chunk work), {len(differing)} differ")
    return 1 if differing else 0


def _read(path: Path) -> dict[int, Any]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {record["order"]: record for record in records}


if __name__ == "__main__":
    main()

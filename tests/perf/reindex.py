"""Chunks that an edit has embedded again, through the API of a running stack.

    python -m tests.perf.reindex [--documents 50] [--rounds 10] [--kind paragraphs]

Each document has one section of 3,000 tokens without subheadings. In each round 40 words are inserted at a
random place of each, and all are indexed again; what was embedded is read from the receipts. Then all are
indexed as they are. Exit status 1 when an edit embeds more than 2.6 chunks in the mean, 2 in the median or 6
in 95 % of all, or when an unchanged document embeds any.
"""

from __future__ import annotations

import argparse
import random
from statistics import mean, median

from indexmill.client import Client
from tests.perf.machine import Watch
from tests.support.edited_texts import edited, handbook
from tests.support.stack import running_stack

CORPUS = "reindex"
MOST_MEAN, MOST_MEDIAN, MOST_95 = 2.6, 2, 6


def main() -> int:
    """Measure, print, and return 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kind", default="paragraphs", help="as in tests/support/edited_texts.py")
    options = parser.parse_args()
    machine, rng = Watch(), random.Random(67)
    texts = [handbook(rng, options.kind, sections=1) for _ in range(options.documents)]
    counts: list[int] = []
    with running_stack("QuotaFree=unlimited", "RateFree=100000") as stack, stack.client() as client:
        first = indexed(client, texts)
        for _ in range(options.rounds):
            texts = [edited(rng, text) for text in texts]
            counts += indexed(client, texts)
        unchanged = indexed(client, texts, force=True)
    counts.sort()
    high = counts[int(0.95 * len(counts))]
    print(f"{options.kind}: {mean(first):.1f} chunks a section; {len(counts)} edits")
    print(f"embedded: mean {mean(counts):.2f}, median {median(counts)}, 95 % {high}, most {counts[-1]}")
    print(f"embedded of unchanged documents: {sum(unchanged)}")
    print("\n".join(machine.lines()))
    good = mean(counts) <= MOST_MEAN and median(counts) <= MOST_MEDIAN and high <= MOST_95
    return 0 if good and not any(unchanged) else 1


def indexed(client: Client, texts: list[str], *, force: bool = False) -> list[int]:
    """Index each text as a document of its own and return how many chunks of each were embedded."""
    names = [f"part-{at}.md" for at in range(len(texts))]
    submits = [client.submit_text(*each, CORPUS, force=force) for each in zip(names, texts, strict=True)]
    ids = [submit.job_id for submit in submits]
    ended = {job.job_id: job for job in client.wait(ids, 600)}
    counts = []
    for job_id in ids:
        if ended[job_id].status != "done":
            raise RuntimeError(f"{job_id} is {ended[job_id].status}: {ended[job_id].error}")
        receipt = client.get(job_id, receipt=True).receipt
        counts.append(int((receipt and receipt.chunks_embedded) or 0))
    return counts


if __name__ == "__main__":
    raise SystemExit(main())

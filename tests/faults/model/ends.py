"""What must be true of the jobs once everything has come to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from indexmill.contracts.job import Job
from indexmill.embedding.ports import Hit
from tests.faults.model.watch import Shown

STATES: Final = ("pending", "scraping", "chunking", "embedding", "done", "failed")
_EXPECTED: Final = frozenset(("poison_message", "canceled"))
"""Nothing is wrong with any page: a job fails only when its worker died often, or somebody canceled it."""

History = list[tuple[str, int, str | None, str]]


def wrong_ends(
    jobs: Sequence[Job],
    issued: Mapping[str, int | None],
    texts: Mapping[str, Sequence[str]],
    shown: Sequence[Shown],
    search: Callable[[str], Sequence[Hit]],
) -> list[str]:
    """Return what is wrong with the ends; `issued` is each job's newest generation.

    `texts` are all sentences that a page ever had, by URL.
    """
    wrong = [
        f"{job.job_id} ended with {job.error}"
        for job in jobs
        if job.status != "done" and (job.error is None or job.error.code not in _EXPECTED)
    ]
    done = {job.job_id: job.url for job in jobs if job.status == "done"}
    for url in sorted({job.url for job in jobs}):
        visible = [each for each in shown if each.url == url and each.visible]
        newest = max(visible, key=lambda each: each.generation, default=None)
        if newest is not None and newest.job_id not in done:
            wrong.append(f"{url} shows what {newest.job_id} published, which is not done")
        wrong += [
            f"{job_id} is done, and search sees neither what it published nor anything newer"
            for job_id in (job_id for job_id, of in done.items() if of == url)
            if newest is None or newest.generation < (issued[job_id] or 0)
        ]
        expected = [newest.text] if newest is not None and url in done.values() else []
        wrong += _wrongly_found(url, expected, texts[url], search)
    return wrong


def _wrongly_found(
    url: str, expected: list[str], texts: Sequence[str], search: Callable[[str], Sequence[Hit]]
) -> list[str]:
    """Return what is wrong with the answers: every sentence finds what the newest job published, once."""
    wrong = []
    for text in texts:
        hits = search(text)
        own = [hit.text for hit in hits if hit.source_url == url]
        first = not expected or text not in expected[0] or hits[0].source_url == url
        if own != expected or not first:
            wrong.append(f"{text!r} of {url} finds {own}, expected {expected}")
    return wrong


def illegal(history: History) -> list[str]:
    """Return what is wrong with the paths: a step that does not start where the last one ended, or twice."""
    at: dict[str, str] = {}
    attempts: dict[str, int] = {}
    wrong = []
    for job_id, attempt, before, after in history:
        again = attempt == attempts.get(job_id, 1) + 1 and before == "failed"
        forward = attempt == attempts.get(job_id, 1) and (
            before is None or after == "failed" or STATES.index(after) > STATES.index(before)
        )
        if before != at.get(job_id) or not (forward or again):
            wrong.append(f"{job_id}: {before} -> {after} in attempt {attempt}, after {at.get(job_id)}")
        at[job_id], attempts[job_id] = after, attempt
    counts = Counter((job_id, attempt, after) for job_id, attempt, _, after in history)
    return wrong + [f"twice: {step}" for step, count in counts.items() if count > 1]

"""Text report of a soak: progress while it runs, and its result."""

from __future__ import annotations

from local.faults.soak import Counts, Outcome, Plan


def line(plan: Plan, counts: Counts) -> str:
    """Return one line of progress."""
    return (
        f"{counts.seconds:5.0f} s  accepted {len(counts.accepted)}/{plan.jobs}  under way {counts.open}"
        f"  killed {counts.kills}/{plan.kills}  database killed {counts.postgres}"
        f"  endpoint faults {counts.endpoint_faults}  refused and sent again {counts.refused}"
    )


def lines(outcome: Outcome) -> list[str]:
    """Return the result, guarantee by guarantee."""
    figures = outcome.figures
    told = [
        f"{len(outcome.counts.accepted)} jobs accepted, {figures['jobs']:.0f} there"
        f" ({outcome.counts.refused} submits had no answer or an error)",
        f"{outcome.counts.kills} processes of functions killed"
        f" ({figures['kills_percent_of_invocations']:.1f} % of invocations), the database"
        f" {outcome.counts.postgres} times, {outcome.counts.endpoint_faults} endpoint faults",
        f"quiet {outcome.quiet_after_s:.0f} s after the last fault"
        if outcome.quiet
        else "it never became quiet",
        f"done: {figures['done_percent']:.2f} %",
        f"executions per job: {figures['executions_per_job']:.3f}",
        f"embeddings paid per chunk: {figures['embeddings_per_chunk']:.3f}",
        *(f"{name}: {count:.0f}" for name, count in figures.items() if name.startswith("failed with")),
    ]
    counted = dict.fromkeys(("I1", "I2", "I3", "I4", "I5", "I10", "I12"), 0)
    for each in outcome.violations:
        counted[each.promise] = counted.get(each.promise, 0) + 1
    names = {
        "I1": "accepted and lost",
        "I2": "stuck, or at the wrong end",
        "I3": "illegal transitions",
        "I4": "done and not searchable whole",
        "I5": "orphans and duplicates",
        "I10": "poison left behind",
        "I12": "secrets told",
    }
    told += [f"{promise} {names.get(promise, '')}: {count}" for promise, count in counted.items()]
    return told + [str(each) for each in outcome.violations[:20]]

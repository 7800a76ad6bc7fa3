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
    """Return the result, invariant by invariant."""
    figures = outcome.figures
    report = [
        f"{len(outcome.counts.accepted)} jobs accepted, {figures['jobs']:.0f} there"
        f" ({outcome.counts.refused} submits had no answer or an error)",
        f"{outcome.counts.kills} processes of functions killed"
        f" ({figures['kills_percent_of_invocations']:.1f} % of invocations), the database"
        f" {outcome.counts.postgres} times, {outcome.counts.endpoint_faults} endpoint faults",
        f"idle {outcome.idle_after_s:.0f} s after the last fault" if outcome.idle else "it never became idle",
        f"done: {figures['done_percent']:.2f} %",
        f"executions per job: {figures['executions_per_job']:.3f}",
        f"embeddings paid per chunk: {figures['embeddings_per_chunk']:.3f}",
        *(f"{name}: {count:.0f}" for name, count in figures.items() if name.startswith("failed with")),
    ]
    counted = dict.fromkeys(("I1", "I2", "I3", "I4", "I5", "I10", "I12"), 0)
    for each in outcome.violations:
        counted[each.invariant] = counted.get(each.invariant, 0) + 1
    names = {
        "I1": "lost jobs",
        "I2": "stuck jobs, or a wrong status",
        "I3": "illegal transitions",
        "I4": "done, and not completely searchable",
        "I5": "orphans and duplicates",
        "I10": "remaining poison messages",
        "I12": "leaked secrets",
    }
    report += [f"{invariant} {names.get(invariant, '')}: {count}" for invariant, count in counted.items()]
    return report + [str(each) for each in outcome.violations[:20]]

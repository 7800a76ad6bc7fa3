"""Formatting of a timeline as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from local.trace.timeline import Event, Stage, Timeline

if TYPE_CHECKING:
    from rich.console import Console

_STYLES: Final = {"state": "bold", "message": "cyan", "run": "", "end": "", "log": "dim", "dead": "red"}


def show(screen: Console, shown: Timeline) -> None:
    """Print the job, its events with offsets, and its stages."""
    from rich.text import Text

    for text in heading(shown):
        screen.print(Text(text))
    for event in shown.events:
        style = "red" if event.failed else _STYLES[event.kind]
        screen.print(Text.assemble((f"{offset(shown, event):>10}  ", "dim"), (event.text, style)))
    screen.print()
    for text in stage_lines(shown):
        screen.print(Text(text))
    if shown.waiting:
        screen.print()
    for text in shown.waiting:
        screen.print(Text(text, "yellow"))


def heading(shown: Timeline) -> Iterator[str]:
    """Return the job in a few lines."""
    job = shown.job
    yield f"job {job['id']}  {job['status']}, attempt {job['attempt']}"
    yield f"{job['url']}  corpus {job['corpus_name'] or 'default'}"
    if job["title"] or job["chunk_count"]:
        yield f"{job['title'] or 'no title'}, {job['chunk_count'] or 0} chunks"
    yield f"{shown.job['created_at']:%Y-%m-%d %H:%M:%S} UTC"


def offset(shown: Timeline, event: Event) -> str:
    """Return the time since the first event."""
    return f"+{_ms(shown, event) / 1e3:.3f} s"


def stage_lines(shown: Timeline) -> Iterator[str]:
    """Return a line for each stage, and the sum."""
    yield f"{'stage':<11}{'time':>10}{'waiting':>10}{'work':>10}{'report':>10}"
    for stage in shown.stages:
        name = stage.name if stage.attempt == 1 else f"{stage.name} #{stage.attempt}"
        what = "  running" if stage.running else f"  failed: {stage.failure}" if stage.failure else ""
        yield f"{name:<11}" + "".join(f"{text:>10}" for text in _times(stage)) + what
    yield f"{'total':<11}{shown.total_ms / 1e3:>8.3f} s"


def as_json(shown: Timeline) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "job": dict(shown.job),
        "total_ms": round(shown.total_ms, 1),
        "waiting": list(shown.waiting),
        "stages": [asdict(stage) for stage in shown.stages],
        "events": [
            {**asdict(event), "at": event.at.isoformat(), "offset_ms": round(_ms(shown, event), 1)}
            for event in shown.events
        ],
    }


def _ms(shown: Timeline, event: Event) -> float:
    first = shown.events[0].at if shown.events else event.at
    return (event.at - first).total_seconds() * 1e3


def _times(stage: Stage) -> Iterator[str]:
    for value in (stage.total_ms, stage.wait_ms, stage.work_ms, stage.report_ms):
        yield "" if value is None else f"{value / 1e3:.3f} s"

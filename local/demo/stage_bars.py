"""Progress of documents: live bars on a terminal, a line per change elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from local.demo.checks import outcome, stages_passed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from indexmill.contracts.job import Job


class StageBars:
    """Progress of `total` documents by stage; call `update` with each change of a job."""

    def __init__(self, screen: Console, total: int) -> None:
        self._screen = screen
        self._statuses: dict[str, str] = {}
        self._total = total
        self._progress: Progress | None = None
        self._bars: dict[str, int] = {}

    def __enter__(self) -> Self:
        """Start drawing."""
        if self._screen.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn("  {task.description:<11}"), BarColumn(40), MofNCompleteColumn())
            self._progress = progress = Progress(*columns, console=self._screen)
            self._bars = {name: progress.add_task(name, total=self._total) for name in stages_passed(())}
            progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state on the screen."""
        if self._progress is not None:
            self._progress.stop()

    def update(self, job: Job) -> None:
        """Record the new status of a job."""
        self._statuses[job.job_id] = job.status
        if self._progress is not None:
            for name, passed in stages_passed(list(self._statuses.values())).items():
                self._progress.update(self._bars[name], completed=passed)  # type: ignore[arg-type]
        elif job.status.terminal:
            self._screen.print(f"  {outcome(job):<26} {job.url}")

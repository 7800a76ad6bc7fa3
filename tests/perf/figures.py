"""The pipeline benchmark's figures as a text table: a row per figure, a column per phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.perf.machine import busy

Row = tuple[str, Sequence[object]]

PHASES: Final = {"low": "one at a time", "saturation": "saturated", "unchanged": "unchanged"}
_SMALL_MS: Final = 0.05
_REQUESTS: Final = {
    "sqs": "SQS requests with messages / job",
    "sqs_units": "  of 64 KiB, as charged / job",
    "sqs_empty": "  receives without a message / job",
    "s3_write": "S3 writes / job",
    "s3_read": "S3 reads / job",
    "dynamodb_write": "DynamoDB writes / job",
    "dynamodb_read": "DynamoDB reads / job",
}


def table(result: Mapping[str, Any]) -> str:
    """Return the figures of one run, and how busy the machine was."""
    phases = {name: result[name] for name in PHASES if name in result}
    memory = result["memory_pss_mb"]
    chunks = result["chunks"]
    lines = [
        f"{result['pages']} pages, {result['embeddings']} embeddings, {result['batch']} URLs a submit",
        *columns(["", *(PHASES[name] for name in phases)], _rows(list(phases.values()))),
        "",
        f"memory: {memory['own']} MB PSS without stand-ins, {memory['processes']} processes with them",
        f"start: {result['ready_s']} s, first job {result['first_job']} ms; "
        f"idle: {result['idle']['own_cores']} cores",
        f"chunks kept: {chunks['kept']}, with the text of another one: {chunks['repeated']}",
        *_functions(result),
        *busy(result["load_before"], {PHASES[name]: phase for name, phase in phases.items()}),
    ]
    return "\n".join(lines)


def columns(titles: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """Yield a header and `rows`, aligned."""
    widths = [max(len(titles[0]), *(len(name) for name, _ in rows))]
    widths += [
        max(len(title), *(len(str(values[at])) for _, values in rows)) for at, title in enumerate(titles[1:])
    ]
    for name, values in ((titles[0], titles[1:]), *rows):
        cells = (f"{value!s:>{width}}" for value, width in zip(values, widths[1:], strict=True))
        yield f"{name:<{widths[0]}}  " + "  ".join(cells)


def _rows(phases: Sequence[Mapping[str, Any]]) -> list[Row]:
    def row(title: str, *path: str) -> Row:
        return title, [_at(phase, path) for phase in phases]

    rows = [
        row("jobs", "jobs"),
        row("CPU-ms / job", "cpu_ms_per_job"),
        row("jobs / min", "jobs_per_min"),
        row("latency p50 ms", "p50_ms"),
        row("latency p95 ms", "p95_ms"),
        row("submit answered, p50 ms", "accept_p50_ms"),
        row("texts embedded / job", "embedded_per_job"),
        *(row(title, "requests_per_job", name) for name, title in _REQUESTS.items()),
    ]
    for kind, title in (
        ("invocations_per_job", "invocations / job"),
        ("cpu_ms_by_component", "CPU-ms / job"),
    ):
        names = dict.fromkeys(
            name for phase in phases for name, value in phase[kind].items() if value >= _SMALL_MS
        )
        rows += [row(f"{title}: {name}", kind, name) for name in names]
    rows.append(row("CPU-ms / job, stand-ins (not counted)", "stand_in_cpu_ms_per_job"))
    rows.append(row("CPU-ms / job, load generator (not counted)", "load_generator_cpu_ms_per_job"))
    rows.append(row("cores used", "own_cores"))
    return rows


def _at(phase: Mapping[str, Any], path: Sequence[str]) -> object:
    found: Any = phase
    for name in path:
        found = found.get(name, "") if isinstance(found, Mapping) else ""
    return found


def _functions(result: Mapping[str, Any]) -> Iterator[str]:
    if "init_ms" in result:
        yield "start of a function, ms of CPU: " + ", ".join(
            f"{name} {times['cpu_ms']:.0f}" for name, times in result["init_ms"].items()
        )
    if "warm_get_us" in result:
        yield f"a GET through FastAPI: {result['warm_get_us']['get_job']} us of CPU"

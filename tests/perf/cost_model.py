"""Cost of a million jobs on AWS: counted calls, the template's memory sizes, and durations that are assumed.

    python -m tests.perf.cost_model

It has what AWS charges for each job. It leaves out what is there without a job (the database, NAT gateways,
receives that find nothing, the sweeper), logs, traffic, and the embedding endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from indexmill.contracts.cost import Prices
from tests.perf.counted_calls import MODES, Calls
from tests.support.function_env import template

API: Final = "OrchestratorApi"
COUNTED: Final[Mapping[str, Calls]] = {
    "single": Calls(1.0, 7.0, 18.0, 1.0, 0.0, 0.0, 2.0),
    "four": Calls(0.01, 1.51, 4.47, 1.0, 0.0, 0.0, 0.27),
    "full": Calls(0.01, 0.61, 2.6, 1.0, 0.0, 0.0, 0.12),
    "long": Calls(0.02, 1.52, 4.45, 3.0, 2.0, 0.0, 0.27),
    "unchanged": Calls(0.01, 0.51, 1.48, 0.0, 0.0, 0.0, 0.26),
}
"""Printed by `python -m tests.perf.counted_calls`; `tests/integration/test_counted_calls.py` counts again."""


@dataclass(frozen=True, slots=True)
class Duration:
    """Milliseconds that an invocation is charged for, warm: `one` with one message, `ten` with ten."""

    one: float
    ten: float
    why: str

    def of(self, messages: int) -> float:
        """Return milliseconds of an invocation with `messages`, on the line through both."""
        return self.one + (self.ten - self.one) * (messages - 1) / 9


ASSUMED: Final[Mapping[str, Duration]] = {
    API: Duration(30, 60, "one transaction and one send; more rows with more URLs"),
    "ScraperWorker": Duration(
        850, 1500, "waits for the site; ten pages load at once, and the slowest decides"
    ),
    "ChunkingWorker": Duration(40, 220, "20 ms for the invocation and 20 ms a page of 16 chunks, CPU alone"),
    "EmbeddingWorker": Duration(210, 400, "one request to the endpoint for all texts, and one transaction"),
    "OrchestratorResults": Duration(30, 80, "one transaction and one send for all results of a batch"),
}
"""Assumed, not measured on AWS: arm64, functions warm, endpoint and database in the same region.

A Lambda gets a core for each 1,769 MB; the benchmark's CPU figures, divided by that share, are within them.
"""
LONG: Final[Mapping[str, Duration]] = {
    **ASSUMED,
    "ChunkingWorker": Duration(150, 1200, "70 chunks a page, and an object read and one written for each"),
    "EmbeddingWorker": Duration(400, 2000, "70 texts a page, and an object read for each"),
}
UNCHANGED: Final[Mapping[str, Duration]] = {
    name: ASSUMED[name] for name in (API, "ScraperWorker", "OrchestratorResults")
}
"""The job is done after its fetch."""
CEILINGS: Final = {"single": (26.0, 26.0), "four": (10.5, 10.0), "full": (8.0, 8.0), "unchanged": (3.0, 2.9)}
"""Dollars of a million jobs: aimed at, and not exceeded today."""
_TABLES: Final = {"long": LONG, "unchanged": UNCHANGED}


def memory_gb() -> dict[str, float]:
    """Return the memory size of each function of the template, GiB."""
    resources = template()["Resources"]
    return {name: resources[name]["Properties"]["MemorySize"] / 1024 for name in ASSUMED}


def cost(mode: str, prices: Prices | None = None) -> dict[str, float]:
    """Return dollars of a million jobs, by what is charged for, of one of `MODES`."""
    price, calls = prices or Prices(), COUNTED[mode]
    gb_s = sum(gb_seconds(mode).values())
    return {
        "Lambda GB-s": gb_s * price.lambda_gb_s,
        "Lambda requests": calls.invocations * price.lambda_request,
        "API requests": calls.api * price.api_request,
        "SQS": calls.sqs_units * price.sqs_request,
        "S3": calls.s3_write * price.s3_write + calls.s3_read * price.s3_read,
        # A request of a caller with a limit is counted by a write, where the laptop's keys only have a look.
        "DynamoDB": (calls.dynamodb_write + calls.api) * price.dynamodb_write
        + max(0.0, calls.dynamodb_read - calls.api) * price.dynamodb_read,
    }


def gb_seconds(mode: str) -> dict[str, float]:
    """Return GB-seconds of a job, by function."""
    memory, durations = memory_gb(), _TABLES.get(mode, ASSUMED)
    found = {}
    # A batch of results for one batch of jobs after each stage.
    stages = sum(name.endswith("Worker") for name in durations)
    for name, duration in durations.items():
        together = min(MODES[mode].submit, MODES[mode].jobs) if name == API else MODES[mode].fill
        times = stages if name == "OrchestratorResults" else 1
        found[name] = times * memory[name] * duration.of(together) / together / 1e3
    return found


def report() -> str:
    """Return the cost of each mode, and the assumed durations beside it."""
    lines = []
    for name, mode in MODES.items():
        parts = cost(name)
        total = sum(parts.values())
        lines.append(f"{mode.title}: ${total:.2f} for 1M jobs{_aim(name, total)}")
        lines.append("  " + ", ".join(f"{part} {value:.2f}" for part, value in parts.items() if value))
        functions = gb_seconds(name).items()
        price = Prices().lambda_gb_s
        lines.append(
            "  GB-s: " + ", ".join(f"{function} {value * price:.2f}" for function, value in functions)
        )
    lines.append("")
    lines.append("assumed ms of a warm invocation with 1, 4 and 10 messages, and the template's memory:")
    memory = memory_gb()
    for title, table in (("", ASSUMED), (", long page", LONG)):
        for name, duration in table.items():
            if table is ASSUMED or duration != ASSUMED[name]:
                times = " / ".join(f"{duration.of(fill):.0f}" for fill in (1, 4, 10))
                lines.append(f"  {name}{title}: {times}, {memory[name] * 1024:.0f} MB: {duration.why}")
    return "\n".join(lines)


def _aim(mode: str, total: float) -> str:
    if mode not in CEILINGS:
        return ""
    aim = CEILINGS[mode][0]
    return f", aim ${aim:.2f}" + (": NOT reached" if total > aim else ": reached")


def main() -> None:
    """Print the model."""
    print(report())


if __name__ == "__main__":
    main()

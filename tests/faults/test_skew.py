"""A process's wall clock is skewed as configured, and its monotonic clock is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from local.faults.control import FaultControl

PROGRAM = """
import json
import time
from datetime import UTC, datetime

from indexmill.platform.time import SystemClock
from local.faults.skew import Skew

true, skew, clock = datetime.now, Skew(), SystemClock()
began, reported = time.monotonic(), []
for seconds in (0, 600, -600, 0):
    skew.set(seconds)
    now = true(UTC).timestamp()
    reported.append([each - now for each in (time.time(), time.time_ns() / 1e9, clock.now().timestamp())])
print(json.dumps([reported, clock.monotonic() - began]))
"""


def test_the_time_is_shifted_and_durations_are_not() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    reported, elapsed = json.loads(ran.stdout)
    assert [[round(each, 1) for each in seconds] for seconds in reported] == [
        *([float(seconds)] * 3 for seconds in (0, 600, -600, 0)),
    ]
    assert 0 <= elapsed < 5


def test_each_function_has_a_clock_of_its_own(tmp_path: Path) -> None:
    control = FaultControl(tmp_path)
    assert control.skew_of("ScraperWorker") == 0
    control.reset()
    control.set_skews(ScraperWorker=600, EmbeddingWorker=-1.5)
    other_process = FaultControl(tmp_path)
    names = ("ScraperWorker", "EmbeddingWorker", "OrchestratorApi")
    assert [other_process.skew_of(name) for name in names] == [600, -1.5, 0]

"""Two versions of a function compared by the reports that Lambda logs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import ROOT

pytestmark = pytest.mark.shows("R190")

FAST = [float(number) for number in range(1, 201)]


def event(version: str, duration_ms: float) -> dict[str, Any]:
    metrics = {"durationMs": duration_ms, "billedDurationMs": 300, "initDurationMs": 900.0}
    message = {"type": "platform.report", "record": {"metrics": metrics, "status": "success"}}
    return {"logStreamName": f"2026/11/22/[{version}]0a1b", "timestamp": 1, "message": json.dumps(message)}


def run(folder: Path, content: Any, *versions: str) -> subprocess.CompletedProcess[str]:
    file = folder / "events.json"
    file.write_text(json.dumps(content))
    command = [sys.executable, "-m", "tools.compare_versions", str(file), *(versions or ("4", "5"))]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def compared(folder: Path, old: list[float], new: list[float]) -> subprocess.CompletedProcess[str]:
    events = [event("4", each) for each in old] + [event("5", each) for each in new]
    return run(folder, {"events": events})


def test_a_version_that_takes_as_long_passes(tmp_path: Path) -> None:
    done = compared(tmp_path, FAST, [each * 1.1 for each in FAST])
    assert done.returncode == 0
    assert "P95 190 ms -> 209 ms" in done.stdout
    assert "P99 198 ms -> 218 ms" in done.stdout
    assert "slower: no (200 and 200 invocations)" in done.stdout


def test_a_slower_version_fails_by_the_share_that_is_slower(tmp_path: Path) -> None:
    done = compared(tmp_path, FAST, [*FAST[:-4], 900.0, 900.0, 900.0, 900.0])
    assert (done.returncode, "slower: P99 (" in done.stdout) == (1, True)
    assert compared(tmp_path, FAST, [each * 2 for each in FAST]).returncode == 1


def test_a_few_milliseconds_of_a_fast_function_are_nothing(tmp_path: Path) -> None:
    assert compared(tmp_path, [2.0] * 100, [6.0] * 100).returncode == 0


def test_few_invocations_are_no_comparison(tmp_path: Path) -> None:
    done = compared(tmp_path, FAST, FAST[:99])
    assert done.returncode == 2
    assert "version 5 has 99 invocations" in done.stderr


@pytest.mark.parametrize("content", [[], {"events": [{"message": "{}"}]}, {"Events": []}])
def test_another_file_is_refused(tmp_path: Path, content: Any) -> None:
    done = run(tmp_path, content)
    assert done.returncode == 2
    assert "is no output of filter-log-events" in done.stderr
    assert "Traceback" not in done.stderr

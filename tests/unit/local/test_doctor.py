"""Findings of doctor on a machine with problems."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from typer.testing import CliRunner

from local.cli.app import app
from local.doctor import examine, machine, programs
from local.doctor.finding import Finding, ok
from local.doctor.template import template
from local.stack.process_identity import identity
from tests.support.repository import ROOT

TEMPLATE = ROOT / "template.yaml"
Usage = namedtuple("Usage", "total used free")


def verdicts(findings: list[Finding]) -> list[str]:
    return [finding.verdict for finding in findings]


def test_an_old_python_is_wrong_and_another_runtime_a_note() -> None:
    assert verdicts(list(programs.python(TEMPLATE, (3, 10)))) == ["wrong"]
    assert verdicts(list(programs.python(TEMPLATE, (3, 11)))) == ["ok", "note"]
    assert verdicts(list(programs.python(TEMPLATE, (3, 13)))) == ["ok"]


def test_a_missing_or_empty_ministack_environment_is_wrong(tmp_path: Path) -> None:
    (missing,) = programs.ministack(tmp_path / "python")
    assert (missing.verdict, missing.mend) == ("wrong", "make setup")
    (empty,) = programs.ministack(Path(sys.executable))
    assert empty.verdict == "wrong"
    assert "ministack" in empty.text


def test_programs_that_do_not_run_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDEXMILL_POSTGRES_BIN", str(tmp_path))
    (absent,) = programs.postgres()
    assert f"no postgres program in {tmp_path}" in absent.text
    for name in ("initdb", "postgres"):
        (tmp_path / name).write_text("no program")
    (broken,) = programs.postgres()
    assert (broken.verdict, "does not run as user" in broken.text) == ("wrong", True)


def test_a_full_disk_is_wrong_and_a_fuller_one_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for free_mb in (100, 1000, 50_000):
        usage = Usage(0, 0, free_mb << 20)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        seen.append(verdicts(list(machine.disk(tmp_path / "none" / "yet"))))
    assert seen == [["wrong"] * 2, ["note"] * 2, ["ok"] * 2]


def test_processes_of_a_killed_stack_are_a_problem_with_a_remedy(tmp_path: Path) -> None:
    assert verdicts(list(machine.stacks(tmp_path))) == ["ok"]
    (tmp_path / "stack.json").write_text("{}")
    assert verdicts(list(machine.stacks(tmp_path))) == ["note"]
    ours = {str(os.getpid()): {"name": "postgres", "started": identity(os.getpid())}}
    (tmp_path / "processes.json").write_text(json.dumps(ours | {"1": {"name": "gone", "started": "0"}}))
    (left,) = machine.stacks(tmp_path)
    assert (left.verdict, left.mend) == ("wrong", f"indexmill down --state {tmp_path}")
    assert f"postgres ({os.getpid()})" in left.text
    assert "gone" not in left.text


def test_a_template_that_cannot_be_used_is_wrong(tmp_path: Path) -> None:
    assert verdicts(list(template(TEMPLATE))) == ["ok", "ok"]
    copy = tmp_path / "template.yaml"
    (absent,) = template(copy)
    assert absent.verdict == "wrong"
    text = TEMPLATE.read_text(encoding="utf-8")
    assert "Default: 360" in text
    copy.write_text(text.replace("Default: 360", "Default: 30"), encoding="utf-8")
    assert verdicts(list(template(copy))) == ["ok", "wrong"]


def test_a_problem_is_printed_before_its_effect_and_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = [*programs.python(TEMPLATE, (3, 10)), *programs.ministack(tmp_path / "python")]
    (tmp_path / "stack.json").write_text("{}")
    bad += [*machine.stacks(tmp_path), *template(tmp_path / "template.yaml")]
    assert [finding for finding in bad if not (finding.affects and finding.mend)] == []
    monkeypatch.setattr(examine, "examine", lambda *_: iter([bad[0], ok("disk", "5 MB free")]))
    shown = CliRunner().invoke(app, ["doctor", "--state", str(tmp_path)])
    assert shown.exit_code == 1
    lines = shown.stdout.splitlines()
    assert lines[0] == "WRONG Python: this is 3.10, older than 3.11"
    assert [line.split()[0] for line in lines[1:3]] == ["affects", "mend"]
    assert lines[3:] == ["ok    disk: 5 MB free"]


def test_a_check_that_breaks_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Finding]:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(machine, "ports", broken)
    found = {finding.about: finding for finding in examine.examine(ROOT, tmp_path)}
    assert found["loopback"].text == "could not be checked: RuntimeError: no such thing"
    assert "template" in found

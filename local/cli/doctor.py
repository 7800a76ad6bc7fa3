"""`indexmill doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_FAILED,
    JsonOption,
    StateOption,
    console,
    exit_with,
    print_json,
)

_MARKS: Final = {"ok": ("ok", "green"), "note": ("note", "yellow"), "wrong": ("WRONG", "bold red")}


def run(as_json: JsonOption = False, state: StateOption = DEFAULT_STATE) -> None:
    """Check this machine for missing or broken prerequisites.

    Each finding has the problem, its effect and a remedy. Exits with 1 when there is a problem; notes alone
    exit with 0.

    Examples:

      indexmill doctor

      indexmill doctor --json
    """
    from local.doctor.examine import examine
    from local.stack.preparation import REPOSITORY

    screen = console()
    found = []
    for finding in examine(REPOSITORY, state):
        found.append(finding)
        if as_json:
            continue
        mark, colour = _MARKS[finding.verdict]
        screen.print(f"[{colour}]{mark:<6}[/]", end="")
        screen.print(f"{finding.about}: {finding.text}", markup=False)
        for head, text in (("affects", finding.affects), ("mend", finding.mend)):
            if text:
                screen.print(f"{'':<6}{head:<8} {text}", markup=False)
    wrong = [finding for finding in found if finding.verdict == "wrong"]
    if as_json:
        print_json({"healthy": not wrong, "findings": [asdict(finding) for finding in found]})
    elif not wrong:
        screen.print("[green]nothing is wrong[/]")
    if wrong:
        exit_with(EXIT_FAILED)

"""Apt sources with another suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.trixie import Impossible, sources

DEB822 = """# A mirror of bookworm
Types: deb
URIs: https://mirror.invalid/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: https://elsewhere.invalid/tools
Suites: stable
"""


def write(folder: Path, name: str, text: str) -> None:
    (folder / "sources.list.d").mkdir(exist_ok=True)
    (folder / name).write_text(text)


def test_the_machines_own_entries_get_another_suite_and_others_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "sources.list.d/debian.sources", DEB822)
    write(tmp_path, "sources.list.d/old.list.disabled", "deb https://off.invalid bookworm main\n")
    found = sources(tmp_path, "bookworm")
    assert "URIs: https://mirror.invalid/debian\nSuites: trixie trixie-updates\n" in found
    assert "elsewhere" not in found
    assert "off.invalid" not in found


def test_one_line_entries_count_and_comments_do_not(tmp_path: Path) -> None:
    entry = "deb https://mirror.invalid/debian bookworm main\n"
    write(tmp_path, "sources.list", f"# {entry}{entry}")
    assert sources(tmp_path, "bookworm") == "deb https://mirror.invalid/debian trixie main\n"


def test_without_debians_suite_there_can_be_no_base(tmp_path: Path) -> None:
    write(tmp_path, "sources.list", "deb https://mirror.invalid/ubuntu noble main\n")
    with pytest.raises(Impossible, match="no apt source"):
        sources(tmp_path, "bookworm")

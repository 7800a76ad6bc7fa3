"""Paths that CONTRIBUTING.md, README.md and the pages of docs/ name in backticks exist."""

from __future__ import annotations

import re

import pytest

from tests.support.repository import ROOT

FULL = ["CONTRIBUTING.md", "README.md", "docs/architecture.md"]
"""Pages that must name some, or the pattern below matches nothing any more."""
PAGES = [*FULL[:2], *sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md"))]
ROOTS = [ROOT, ROOT / "layers/indexmill/python/indexmill"]
_PATH = re.compile(r"`((?:[\w*-]+/)+[\w*.-]*\.(?:py|md|sql|yaml|toml|txt|json))`")


def paths(text: str) -> list[str]:
    """Return the files of this repository that `text` names in backticks, with their folder."""
    return _PATH.findall(text)


def exists(path: str) -> bool:
    """Return whether the path, or a file that matches its pattern, is in the repository."""
    return any(list(root.glob(path)) for root in ROOTS)


@pytest.mark.parametrize("page", PAGES)
def test_every_path_of_the_page_exists(page: str) -> None:
    found = paths((ROOT / page).read_text(encoding="utf-8"))
    assert len(found) >= (3 if page in FULL else 0)
    assert [path for path in found if not exists(path)] == []


def test_the_list_of_decisions_has_each_once_under_its_own_title() -> None:
    """The list may shorten a title's end; what it says is how the page begins."""
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(
        r"^\* \[(.+)\]\((.+)\)$", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    pages = sorted(page.name for page in folder.glob("0*.md"))
    assert sorted(name for _, name in listed) == pages
    for title, name in listed:
        assert (folder / name).read_text(encoding="utf-8").startswith(f"# {title}"), name


def test_a_path_that_does_not_exist_is_noticed() -> None:
    text = (
        "See `orchestrator/nothing.py`, `contracts/http_*.py`, `make test`, `<service>/api.py`, `/tmp/x.py`."
    )
    assert paths(text) == ["orchestrator/nothing.py", "contracts/http_*.py"]
    assert [exists(path) for path in paths(text)] == [False, True]

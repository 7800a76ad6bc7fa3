"""Text and calls that no file of this repository contains."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import ROOT, inside, python_files, text_files

# Put together here, so that this file is clean itself.
INDEXES = [
    r"pypi" + r"\.org",
    r"python" + r"hosted",
    r"artifact" + r"ory",
    r"npm" + r"js\.(?:org|com)",
    r"(?:repo1?|central)\." + r"maven",
    r"/sim" + r"ple/",
    r"dev" + r"pi\b",
]
FOLDERS = [
    r"(?<![\w.])/(?:ho" + r"me|Us" + r"ers)/\w+",
    r"(?<![\w./])/ro" + r"ot/",
    r"(?<![\w.])/wo" + r"rk/",
    r"/opt/" + r"wheels",
]
UNFINISHED = [r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b"]

BANNED = {"time.time", "time.sleep", "datetime.now", "datetime.utcnow"}
OWN_TIME = ("local/", "tools/", "examples/", "tests/support/", "tests/perf/")
# The clock itself, and the client, which waits on its caller's machine.
CLOCKS = {
    "layers/indexmill/python/indexmill/platform/time.py",
    "clients/python/indexmill/client/transport.py",
}


def occurrences(patterns: list[str]) -> list[str]:
    """Return each match of one of the `patterns`: file, line and text."""
    pattern = re.compile("|".join(patterns))
    return [
        f"{inside(path)}:{number}: {match[0]}"
        for path, text in text_files().items()
        for number, line in enumerate(text.splitlines(), 1)
        if (match := pattern.search(line))
    ]


@pytest.mark.parametrize("patterns", [INDEXES, FOLDERS, UNFINISHED], ids=["indexes", "folders", "unfinished"])
def test_no_file_has(patterns: list[str]) -> None:
    assert occurrences(patterns) == []


@pytest.mark.parametrize(
    ("patterns", "line"),
    [
        (INDEXES, "https://pypi" + ".org/sim" + "ple/uv"),
        (FOLDERS, "path = '/ho" + "me/someone/project'"),
        (UNFINISHED, "# TO" + "DO later"),
    ],
)
def test_the_patterns_find_what_they_are_for(patterns: list[str], line: str) -> None:
    assert re.search("|".join(patterns), line)


def clock_calls(source: str) -> Iterator[str]:
    """Yield what reads or waits for the machine's clock, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            name = ".".join(ast.unparse(node).split(".")[-2:])
            if name in BANNED:
                yield f"{node.lineno} {name}"
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (
                f"{node.lineno} time.{each.name}" for each in node.names if f"time.{each.name}" in BANNED
            )


def has_own_time(path: Path) -> bool:
    return inside(path).startswith(OWN_TIME) or inside(path) in CLOCKS


def test_only_the_clock_asks_for_the_time() -> None:
    found = {
        inside(path): calls
        for path in python_files()
        if not has_own_time(path) and (calls := list(clock_calls(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "from time import sleep",
        "import datetime\ndatetime.datetime.now()",
        "x = datetime.now",
    ],
)
def test_a_call_of_the_clock_is_seen(source: str) -> None:
    assert list(clock_calls(source))


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        pytest.param(
            "S608", "query = f\"SELECT * FROM jobs WHERE id = '{word}'\"", marks=pytest.mark.shows("S23")
        ),
        pytest.param("S301", "import pickle; pickle.loads(word)", marks=pytest.mark.shows("S24")),
        pytest.param("S307", "eval(word)", marks=pytest.mark.shows("S24")),
        pytest.param("S506", "import yaml; yaml.load(word)", marks=pytest.mark.shows("S24")),
        pytest.param(
            "S602", "import subprocess; subprocess.run(word, shell=True)", marks=pytest.mark.shows("S24")
        ),
        pytest.param("S113", "import httpx; httpx.get(word, timeout=None)", marks=pytest.mark.shows("S25")),
    ],
)
@pytest.mark.parametrize("place", ["made_up", "adapters/made_up", "adapters/pgvector/made_up"])
def test_lint_refuses_what_is_dangerous(rule: str, line: str, place: str) -> None:
    name = f"layers/indexmill/python/indexmill/embedding/{place}.py"
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--no-cache",
        "--output-format",
        "concise",
        "--stdin-filename",
        name,
        "-",
    ]
    source = f"def run(word: str) -> None:\n    {line}\n"
    found = subprocess.run(command, cwd=ROOT, input=source, capture_output=True, text=True, check=False)
    assert rule in found.stdout


@pytest.mark.shows("S23")
def test_no_rule_of_security_is_switched_off_for_what_is_deployed() -> None:
    deployed = ("layers/", "functions/", "sql/")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    off = [
        (pattern, rule)
        for pattern, rules in settings["per-file-ignores"].items()
        for rule in rules
        if pattern.startswith(deployed) and re.fullmatch(r"S\d*", rule)
    ]
    # Beside a line, with its reason: none of SQL, of code from data, or of time limits.
    off += [
        (inside(path), match[0])
        for path in python_files()
        if inside(path).startswith(deployed)
        for match in re.finditer(r"noqa: .*\bS(608|30[17]|506|602|113)\b", path.read_text(encoding="utf-8"))
    ]
    assert off == []


SECRET_NAMES = re.compile(r"(^|_)(key|secret|mac|token|signature|hmac|password)s?$")


def compared_secrets(source: str) -> Iterator[str]:
    """Yield the comparisons by == or != in which a name is that of a secret, and none is a constant."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare) or not all(
            isinstance(op, ast.Eq | ast.NotEq) for op in node.ops
        ):
            continue
        sides = [node.left, *node.comparators]
        names = [
            side.id if isinstance(side, ast.Name) else side.attr
            for side in sides
            if isinstance(side, ast.Name | ast.Attribute)
        ]
        if any(SECRET_NAMES.search(name) for name in names) and len(names) == len(sides):
            yield ast.unparse(node)


@pytest.mark.shows("S26")
def test_no_secret_is_compared_character_by_character() -> None:
    found = {
        inside(path): compared
        for path in python_files()
        if inside(path).startswith(("layers/", "functions/"))
        and (compared := list(compared_secrets(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source", ["mac == given", "self.signature != expected_signature", "given.token == token"]
)
def test_a_comparison_of_secrets_is_seen(source: str) -> None:
    assert list(compared_secrets(source))


@pytest.mark.parametrize("source", ['token == ""', "hmac.compare_digest(mac, given)", "status == other"])
def test_another_comparison_is_not(source: str) -> None:
    assert not list(compared_secrets(source))

"""Reading costs, counted on a small invented library."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.reading import Trace, executed_sql, importers, lines, with_one_importer

LIBRARY = "layers/indexmill/python/indexmill"
FILES = {
    "functions/shop/api.py": "from indexmill.shop.buy import buy\n\nhandler = buy\n",
    f"{LIBRARY}/__init__.py": "",
    f"{LIBRARY}/shop/__init__.py": "from indexmill.shop import buy\n",
    f"{LIBRARY}/shop/buy.py": "from indexmill.shop import price\n\n\ndef buy():\n    return price.of()\n",
    f"{LIBRARY}/shop/price.py": "class Price:\n    LIST = [1]\n\n\ndef of():\n    return Price.LIST\n",
    f"{LIBRARY}/shop/sell.py": "def sell():\n    import indexmill.shop.price as p\n    return p.of()\n",
    f"{LIBRARY}/shop/jobs.sql": "--\n-- name: find\nSELECT {{columns}}\nFROM jobs;\n-- name: drop\nDROP\n",
    f"{LIBRARY}/shop/other.sql": "-- name: other\nSELECT 2\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The library in a folder."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def function(root: Path, name: str, attribute: str) -> Callable[[], object]:
    """Load a module from its file and return one of its functions."""
    spec = importlib.util.spec_from_file_location(f"reading_{attribute}", root / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[], object] = getattr(module, attribute)
    return found


def test_importers_are_modules_of_the_library_and_functions(root: Path) -> None:
    assert importers(root) == {
        "indexmill.shop.buy": {"shop.api"},
        "indexmill.shop.price": {"indexmill.shop.buy", "indexmill.shop.sell"},
        "indexmill.shop.sell": set(),
    }
    assert with_one_importer(root) == ["indexmill.shop.buy"]


def test_lines_of_python_and_sql_are_counted(root: Path) -> None:
    assert lines(root) == {".py": 3 + 0 + 1 + 5 + 6 + 3, ".sql": 6 + 2}


def test_only_functions_that_run_inside_a_leg_are_traced(root: Path) -> None:
    trace = Trace(root)
    with trace.installed():
        price = function(root, f"{LIBRARY}/shop/price.py", "of")
        price()
        with trace.leg("import"):
            function(root, f"{LIBRARY}/shop/sell.py", "sell")
        with trace.leg("outer"):
            with trace.leg("inner"):
                price()
            thread = threading.Thread(target=price)
            thread.start()
            thread.join()
    assert trace.legs == {
        "import": {},
        "outer": {f"{LIBRARY}/shop/price.py": None},
        "inner": {f"{LIBRARY}/shop/price.py": None},
    }


def test_files_are_distinct_and_in_order(root: Path) -> None:
    trace = Trace(root)
    trace.add("first", ["b", "a"])
    trace.add("second", ["a", "c"])
    assert trace.files() == ["b", "a", "c"]
    assert trace.files("second") == ["a", "c"]


def test_an_sql_file_counts_when_one_of_its_statements_was_executed(root: Path) -> None:
    assert executed_sql(root, ["SELECT id,\n  status\nFROM jobs"]) == [f"{LIBRARY}/shop/jobs.sql"]
    assert executed_sql(root, ["SELECT 1"]) == []

"""Modules that were imported before the fork, and the record by which an environment gets them back.

A forked environment shares them, but its `sys.modules` begins as that of a new interpreter. What it imports
is given back, with all that the load would have imported. Run as a script this is the supervisor: the record
begins before the supervisor's own imports.
"""

from __future__ import annotations

import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_BOOTSTRAP: Any = sys.modules["_frozen_importlib"]
_BEGUN_WITH = frozenset(sys.modules) - {"__future__"}
"""What each interpreter begins with."""


class ImportRecord:
    """Names of the modules that each module imports while it is loaded."""

    def __init__(self) -> None:
        self._needs: dict[str, set[str]] = {}
        self._import: Any = builtins.__import__
        self._import_module: Any = _BOOTSTRAP._gcd_import

    def begin(self) -> None:
        """Record all imports from now on."""
        builtins.__import__ = self._on_import
        _BOOTSTRAP._gcd_import = self._on_import_module

    def end(self) -> None:
        """Record no more."""
        builtins.__import__ = self._import
        _BOOTSTRAP._gcd_import = self._import_module

    def complete(self) -> None:
        """Add the names that packages put into `sys.modules` themselves: they come with their package."""
        imported = {name for names in self._needs.values() for name in names}
        packages = {name.rpartition(".")[0] for name in sys.modules}
        for name in sys.modules.keys() - imported - packages - _BEGUN_WITH:
            owner = name.rpartition(".")[0] or getattr(sys.modules[name], "__name__", name)
            self._needs.setdefault(owner, set()).add(name)

    def with_needs(self, name: str) -> set[str]:
        """Return the names that are in `sys.modules` after a new interpreter imported one."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each and each not in found:
                found.add(each)
                waiting += (each.rpartition(".")[0], *self._needs.get(each, ()))
        return found

    def _on_import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        found: ModuleType = self._import(name, globals, locals, fromlist, level)
        if level:
            package = (globals or {}).get("__package__") or (globals or {}).get("__name__", "")
            name = _BOOTSTRAP._resolve_name(name, package, level)
        self._note(name, *_named(name, fromlist or ()))
        return found

    def _on_import_module(self, name: str, package: str | None = None, level: int = 0) -> ModuleType:
        found: ModuleType = self._import_module(name, package, level)
        self._note(_BOOTSTRAP._resolve_name(name, package, level) if level else name)
        return found

    def _note(self, *names: str) -> None:
        frame = sys._getframe(2)
        while frame.f_code.co_name != "<module>":
            if frame.f_back is None:
                return
            frame = frame.f_back
        self._needs.setdefault(frame.f_globals["__name__"], set()).update(names)


def _named(module: str, names: Sequence[str]) -> Iterator[str]:
    """Yield the modules among names imported from one, and those that it imports when asked for a name."""
    package = sys.modules.get(module)
    lazy = hasattr(package, "__getattr__")
    for name in names:
        if (inner := f"{module}.{name}") in sys.modules:
            yield inner
        elif lazy and (origin := getattr(getattr(package, name, None), "__module__", None)) in sys.modules:
            yield str(origin)


class Preloaded:
    """Finder and loader of the modules that were imported before the fork."""

    def __init__(self, record: ImportRecord) -> None:
        """Hide them all."""
        self._record = record
        kept = _BEGUN_WITH | {"__main__"}
        self._hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name not in kept}
        self._specs: dict[str, ModuleSpec | None] = {}
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return a specification by which the module is given back; None for one that was not imported."""
        module = self._hidden.get(name)
        if module is None:
            return None
        own = getattr(module, "__spec__", None)
        spec: ModuleSpec = _BOOTSTRAP.ModuleSpec(name, self, origin=getattr(own, "origin", None))
        spec.submodule_search_locations = getattr(module, "__path__", None)
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        module = self._hidden[spec.name]
        self._specs[spec.name] = getattr(module, "__spec__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give it back, with its needs."""
        name = getattr(module.__spec__, "name", module.__name__)
        module.__spec__ = self._specs.pop(name)
        for each in self._record.with_needs(name):
            if (given := self._hidden.pop(each, None)) is not None:
                sys.modules.setdefault(each, given)


if __name__ == "__main__":
    RECORD = ImportRecord()
    RECORD.begin()
    sys.modules["local.compute.preloaded"] = sys.modules["__main__"]
    from local.compute.supervisor import main

    main(sys.argv[1:], RECORD)

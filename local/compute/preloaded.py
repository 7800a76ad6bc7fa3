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
_BY_CACHED_FUNCTIONS = {"pydantic._internal._import_utils": {"pydantic.main"}}
"""Imports by functions that cache their result: only the first call is recorded."""
_KEPT = _BEGUN_WITH | {"__main__"}


class ImportRecord:
    """Names of the modules that each module imports while it is loaded."""

    def __init__(self) -> None:
        self._needs = {name: set(needs) for name, needs in _BY_CACHED_FUNCTIONS.items()}
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

    def needs(self, modules: Mapping[str, ModuleType]) -> dict[str, tuple[str, ...]]:
        """Return what an import of each of these modules imports directly, the package around it included.

        A name that a package put into `sys.modules` itself comes with its package.
        """
        imported = {name for each in self._needs.values() for name in each}
        found = {name: {name.rpartition(".")[0], *self._needs.get(name, ())} for name in modules}
        packages = {name.rpartition(".")[0] for name in found}
        for name in found.keys() - imported - packages:
            owner = name.rpartition(".")[0] or getattr(modules[name], "__name__", name)
            found.setdefault(owner, set()).add(name)
        return {name: tuple(each & found.keys()) for name, each in found.items()}

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
    """Yield names that may be modules: those imported from one, and those of what a lazy package returns."""
    package = sys.modules.get(module)
    lazy = hasattr(package, "__getattr__")
    for name in names:
        yield f"{module}.{name}"
        if lazy:
            yield str(getattr(getattr(package, name, None), "__module__", ""))


class Preloaded:
    """Finder and loader of modules that are hidden: imported already, and not in `sys.modules`.

    They are hidden before the fork, since what an environment writes to it no longer shares, also a count of
    references.
    """

    def __init__(self) -> None:
        self._hidden: dict[str, ModuleType] = {}
        self._needs: dict[str, tuple[str, ...]] = {}
        self._specs: dict[str, ModuleSpec | None] = {}
        sys.meta_path.insert(0, self)

    def hide(self, record: ImportRecord) -> None:
        """Hide every module but those that each interpreter begins with."""
        self._hidden |= {name: each for name, each in sys.modules.items() if name not in _KEPT}
        self._needs = record.needs(sys.modules | self._hidden)
        for name in self._hidden.keys() & sys.modules.keys():
            del sys.modules[name]

    def drop(self, package: str, folder: str) -> None:
        """Forget a package, unless it is in this folder."""
        module = self._hidden.get(package)
        # A namespace package has no file.
        places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
        if module is not None and not any(place.startswith(folder) for place in places):
            for name in [each for each in self._hidden if each.partition(".")[0] == package]:
                del self._hidden[name]

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return a specification by which the module is given back; None for one that is not hidden."""
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
        """Give it back, with all that its load would have imported."""
        name = getattr(module.__spec__, "name", module.__name__)
        module.__spec__ = self._specs.pop(name)
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if (given := self._hidden.pop(each, None)) is not None:
                sys.modules.setdefault(each, given)
                waiting += self._needs[each]


if __name__ == "__main__":
    RECORD = ImportRecord()
    RECORD.begin()
    sys.modules["local.compute.preloaded"] = sys.modules["__main__"]
    from local.compute.supervisor import main

    main(sys.argv[1:], RECORD)

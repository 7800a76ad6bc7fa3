"""Loader of named SQL statements, from the .sql files beside a module.

`-- name: x` begins a statement and `-- fragment: x` a text that statements include as `{{x}}`. Other comment
lines are not sent to the server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, LiteralString

_HEAD: Final = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_INCLUDE: Final = re.compile(r"\{\{(\w+)\}\}")


def load(folder: Path, constants: Mapping[str, object] | None = None) -> dict[str, LiteralString]:
    """Return every statement of the folder's .sql files by name.

    `constants` are fragments too, for numbers that the code knows. Raises ValueError for a name that is used
    twice, and KeyError for an include that is not defined.
    """
    texts: dict[str, str] = {name: str(value) for name, value in (constants or {}).items()}
    names: list[str] = []
    for file in sorted(folder.glob("*.sql")):
        parts = _HEAD.split(file.read_text(encoding="utf-8"))[1:]
        for kind, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            if name in texts:
                raise ValueError(f"{file.name}: {name} is defined twice")
            texts[name] = _COMMENT.sub("", text).strip().removesuffix(";")
            if kind == "name":
                names.append(name)

    def filled(text: str) -> str:
        return _INCLUDE.sub(lambda include: filled(texts[include[1]]), text)

    # Literal in the sense of PEP 675: only code and the constants are in them.
    return {name: filled(texts[name]) for name in names}

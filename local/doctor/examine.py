"""All checks, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from local.doctor import machine, programs
from local.doctor.finding import Finding, wrong
from local.doctor.template import template


def examine(repository: Path, state: Path) -> Iterator[Finding]:
    """Yield the findings of all checks, in order.

    Nothing is changed, except that the database's programs are copied where the next start would copy them.
    """
    source = repository / "template.yaml"
    interpreter = repository / ".venv-ministack" / "bin" / "python"
    checks: tuple[tuple[str, Callable[[], Iterable[Finding]]], ...] = (
        ("Python", lambda: programs.python(source)),
        (".venv", lambda: programs.environment(repository)),
        (".venv-ministack", lambda: programs.ministack(interpreter)),
        ("Postgres", programs.postgres),
        ("loopback", machine.ports),
        ("disk", lambda: machine.disk(state)),
        ("stack", lambda: machine.stacks(state)),
        ("template", lambda: template(source)),
    )
    for about, check in checks:
        try:
            yield from check()
        except Exception as error:  # noqa: BLE001 - a check that breaks is a finding, and the others continue
            text = f"could not be checked: {type(error).__name__}: {error}"
            yield wrong(about, text, "its other problems stay unknown", "make setup")

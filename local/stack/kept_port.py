"""Ports kept across starts on a state folder: saved addresses stay valid."""

from __future__ import annotations

from urllib.parse import urlsplit

from local.backends.process import free_port
from local.stack.state import StateFolder

_OPTIONS = {"gateway": "up --port N", "Postgres": "up --postgres-port N"}
"""How a person chooses the port of a service."""


class PortTaken(RuntimeError):
    """Raised when the requested port is not free."""


class KeptPort:
    """Port of a service: the requested one, else the last one, else any."""

    def __init__(self, state: StateFolder, name: str, asked: int = 0) -> None:
        """`asked` is 0 for any port. Raises PortTaken when the requested one is not free."""
        self._state, self._name = state, name
        if asked and free_port(asked) != asked:
            raise PortTaken(
                f"port {asked} is not available for {_the(name)}, another program uses it or it is reserved; "
                f"choose another: indexmill {_OPTIONS.get(name, 'up')}"
            )
        last = state.last_port(name)
        self.number = asked or (free_port(last) if last else 0)
        """0 lets the system choose."""
        self.warnings: list[str] = []
        """Sentences for clients that rely on the port."""
        if last and not asked and self.number != last:
            choose = f" ({_OPTIONS[name]} chooses another)" if name in _OPTIONS else ""
            self.warnings.append(
                f"the last port of {_the(name)}, {last}, is used by another program; "
                f"what names it reaches that program{choose}"
            )

    def keep(self, url: str) -> str:
        """Remember the port of a URL at which the service answers; returns `url`."""
        port = urlsplit(url).port
        if port:
            self._state.keep_port(self._name, port)
        return url


def _the(name: str) -> str:
    return name if name == "Postgres" else f"the {name}"

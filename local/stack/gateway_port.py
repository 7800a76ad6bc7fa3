"""Port of the gateway, kept across starts on a state folder."""

from __future__ import annotations

from urllib.parse import urlsplit

from local.backends.process import free_port
from local.stack.state import StateFolder

_NAME = "gateway"


class PortTaken(RuntimeError):
    """Raised when the requested port is not free."""


class GatewayPort:
    """Port for the gateway: the requested one, else the last one, else any."""

    def __init__(self, state: StateFolder, asked: int) -> None:
        """`asked` is 0 for any port. Raises PortTaken when the requested one is not free."""
        self._state = state
        if asked and free_port(asked) != asked:
            raise PortTaken(
                f"port {asked} is not available for the gateway, another program uses it or it is reserved; "
                "choose another: indexmill up --port N"
            )
        last = state.last_port(_NAME)
        self.number = asked or (free_port(last) if last else 0)
        self.warnings: list[str] = []
        """Sentences for clients that rely on the port."""
        if last and not asked and self.number != last:
            self.warnings.append(
                f"the gateway's last port {last} is used by another program; "
                "scripts that name it reach that program (up --port N chooses another)"
            )

    def keep(self, url: str) -> str:
        """Remember the port at which the gateway serves; returns `url`."""
        port = urlsplit(url).port
        if port:
            self._state.keep_port(_NAME, port)
        return url

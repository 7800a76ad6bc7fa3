"""The host's part while faults are switched on: proxies between the functions and what they connect to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from local.faults.control import FaultControl
from local.faults.proxy import FaultProxy

PROXIED: Final = {"DATABASE_URL": "postgres", "EMBEDDING_BASE_URL": "embeddings"}
"""Variables of functions that hold an address, and the name of the proxy before it."""


class Proxies:
    """One proxy for each address that functions are told; toxics come from the control folder."""

    def __init__(self, control: FaultControl) -> None:
        self._control = control
        self._running: list[FaultProxy] = []

    async def start(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Start; the variables that functions are told in place of these."""
        changed = {}
        for variable, name in PROXIED.items():
            parts = urlsplit(variables.get(variable, ""))
            if parts.hostname is None or parts.port is None:
                continue
            proxy = FaultProxy(
                parts.hostname,
                parts.port,
                partial(self._control.toxic, name),
                partial(self._control.befell, name),
            )
            self._running.append(proxy)
            account, at, _ = parts.netloc.rpartition("@")
            there = f"{account}{at}127.0.0.1:{await proxy.start()}"
            changed[variable] = parts._replace(netloc=there).geturl()
        return changed

    async def stop(self) -> None:
        """Close the proxies."""
        for proxy in self._running:
            await proxy.stop()

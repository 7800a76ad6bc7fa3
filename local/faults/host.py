"""Fault proxies between the functions and the services that they connect to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from local.faults.control import FaultControl
from local.faults.proxy import FaultProxy
from local.template.spec import FunctionSpec

PROXIED: Final = {"DATABASE_URL": "postgres", "EMBEDDING_BASE_URL": "embeddings"}
"""Variables of functions that contain an address, and the name of the proxy in front of it."""


class Proxies:
    """One proxy in front of each address in the functions' variables; toxics come from the control folder."""

    def __init__(self, control: FaultControl) -> None:
        self._control = control
        self._running: dict[tuple[str, str, int], tuple[FaultProxy, int]] = {}

    async def start(self, functions: Sequence[FunctionSpec]) -> list[FunctionSpec]:
        """Start the proxies; return the functions with the proxies' addresses."""
        return [
            replace(
                function,
                environment={
                    name: await self._behind(PROXIED[name], value) if name in PROXIED else value
                    for name, value in function.environment.items()
                },
            )
            for function in functions
        ]

    async def stop(self) -> None:
        """Close the proxies."""
        for proxy, _ in self._running.values():
            await proxy.stop()

    async def _behind(self, name: str, url: str) -> str:
        parts = urlsplit(url)
        if parts.hostname is None or parts.port is None:
            return url
        key = name, parts.hostname, parts.port
        if key not in self._running:
            choose, on_hit = partial(self._control.toxic, name), partial(self._control.record_hit, name)
            proxy = FaultProxy(parts.hostname, parts.port, choose, on_hit)
            self._running[key] = proxy, await proxy.start()
        account, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{account}{at}127.0.0.1:{self._running[key][1]}").geturl()

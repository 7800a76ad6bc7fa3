"""Ports across starts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from local.backends.process import free_port
from local.stack.kept_port import KeptPort, PortTaken
from local.stack.state import StateFolder


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return StateFolder(tmp_path)


def test_the_first_start_takes_any_port_and_the_next_one_the_same(state: StateFolder) -> None:
    assert KeptPort(state, "gateway", 0).number == 0
    port = free_port()
    assert KeptPort(state, "gateway", 0).keep(f"http://127.0.0.1:{port}") == f"http://127.0.0.1:{port}"
    again = KeptPort(state, "gateway", 0)
    assert (again.number, again.warnings) == (port, [])


def test_a_port_in_use_is_replaced_and_reported(state: StateFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        state.keep_port("gateway", port)
        chosen = KeptPort(state, "gateway", 0)
    assert chosen.number not in (0, port)
    (warning,) = chosen.warnings
    assert f"last port of the gateway, {port}, is used by another program" in warning


def test_a_port_that_was_asked_for_is_never_replaced(state: StateFolder) -> None:
    state.keep_port("gateway", free_port())
    asked = free_port()
    assert (KeptPort(state, "gateway", asked).number, KeptPort(state, "gateway", asked).warnings) == (
        asked,
        [],
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(PortTaken, match="choose another: indexmill up --port"),
    ):
        KeptPort(state, "gateway", other.getsockname()[1])


def test_each_service_has_its_own(state: StateFolder) -> None:
    ports = {name: free_port() for name in ("gateway", "Postgres", "AWS endpoint")}
    for name, port in ports.items():
        KeptPort(state, name).keep(f"postgresql://user@127.0.0.1:{port}/postgres")
    assert {name: KeptPort(state, name).number for name in ports} == ports

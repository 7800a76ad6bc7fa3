"""A command whose request is refused says why, and what to do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from indexmill.contracts.identity import MissingScope
from indexmill.platform.http.app import envelope
from local.cli import terminal


@pytest.fixture
def gateway() -> Iterator[str]:
    """Serve the answer to a key without the scope of the request."""
    refused = envelope(MissingScope("orchestrator:read"), "request-1")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(refused.status_code)
            self.send_header("Content-Length", str(len(refused.body)))
            self.end_headers()
            self.wfile.write(refused.body)

        def log_message(self, *_args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_missing_scope_is_named_with_what_to_do(gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "running_stack", lambda _state: {"gateway": gateway, "api_key": "bound"})
    with (
        pytest.raises(terminal.Failure) as failed,
        terminal.api_client(Path(), "asking for the limits") as api,
    ):
        api.limits()
    sentence = str(failed.value)
    assert sentence.startswith("asking for the limits failed: insufficient_scope (403): ")
    assert "the scope orchestrator:read" in sentence
    assert (
        json.loads(bytes(envelope(MissingScope("orchestrator:read"), "").body))["error"]["hint"] in sentence
    )
    assert failed.value.exit_code == terminal.EXIT_FAILED

"""Commands print the scope that a key is missing, with a hint, and the scopes that it has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fastapi import Response

from indexmill.contracts.http_actions import CallerLimits
from indexmill.contracts.identity import MissingScope
from indexmill.platform.http.app import envelope
from local.cli import limits, terminal


@contextmanager
def gateway(answer: Response) -> Iterator[str]:
    """Serve one answer to every GET, and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answer.status_code)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_missing_scope_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = MissingScope("orchestrator:read")
    with gateway(envelope(missing, "request-1")) as url:
        monkeypatch.setattr(terminal, "running_stack", lambda _state: {"gateway": url, "api_key": "bound"})
        with pytest.raises(terminal.Failure) as failed:
            limits.run(state=Path())
    sentence = str(failed.value)
    assert sentence.startswith("asking for the limits failed: insufficient_scope (403): ")
    assert "the scope orchestrator:read" in sentence
    assert sentence.endswith(f"; {missing.hint}")
    assert failed.value.exit_code == terminal.EXIT_FAILED


@pytest.mark.parametrize(
    ("granted", "line"), [(None, None), ([], "scopes none"), (["a:b", "c:d"], "scopes a:b, c:d")]
)
def test_the_scopes_of_a_key_are_shown_where_it_has_a_list(
    granted: list[str] | None,
    line: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = CallerLimits(
        caller_id="me",
        tier="pro",
        granted_scopes=granted,
        requests=[],
        jobs=[],
        pending=0,
        max_pending=9,
        corpus_chunks=None,
    )
    with gateway(Response(found.model_dump_json())) as url:
        monkeypatch.setattr(terminal, "running_stack", lambda _state: {"gateway": url, "api_key": "bound"})
        limits.run(state=Path())
    shown = [each for each in capsys.readouterr().out.splitlines() if each.startswith("scopes")]
    assert shown == ([] if line is None else [line])

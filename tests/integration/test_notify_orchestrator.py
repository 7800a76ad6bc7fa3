"""Results over HTTP: retried, counted once, and sent to the queue when no answer comes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from indexmill.contracts.content import BlobRef
from indexmill.contracts.errors import TransientError
from indexmill.contracts.messages import StageResult, read
from indexmill.notify_orchestrator import NotifyOrchestrator
from tests.support.jobs import embedded, failed, scraped
from tests.twins.queues import InMemoryQueue

pytestmark = pytest.mark.integration


@dataclass
class Orchestrator:
    """A server with configured answers, the last of them repeatedly."""

    answers: list[tuple[int, dict[str, str]]] = field(default_factory=lambda: [(200, {})])
    asked: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    url: str = ""

    def answer(self) -> tuple[int, dict[str, str]]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def orchestrator() -> Iterator[Orchestrator]:
    orchestrator = Orchestrator()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            orchestrator.asked.append((self.path, self.headers["X-API-Key"], body))
            status, headers = orchestrator.answer()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "2"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    orchestrator.url = f"http://127.0.0.1:{server.server_port}"
    yield orchestrator
    server.shutdown()
    thread.join()
    server.server_close()


class Sender:
    def __init__(self, url: str) -> None:
        self.queue, self.pauses = InMemoryQueue(), list[float]()
        self.notify = NotifyOrchestrator(f"{url}/", "secret-key", self.queue, pause=self.pauses.append)


JOB = "5f0f3fdc-6a3e-4d3f-8d2c-111111111111"


def test_a_result_is_sent_with_its_id_and_attempt(orchestrator: Orchestrator) -> None:
    sender, result = Sender(orchestrator.url), scraped(JOB, attempt=3)
    assert sender.notify(result) == "http"
    ((path, key, body),) = orchestrator.asked
    assert (path, key) == (f"/orchestrator/jobs/{JOB}/complete", "secret-key")
    assert (body["stage"], body["status"], body["attempt"], body["message_id"]) == (
        *("scraping", "success", 3, result.message_id),
    )
    assert body["result"]["text"] == "# Title\n\nSome words."
    assert (sender.pauses, sender.queue.bodies) == ([], [])


@pytest.mark.parametrize("result", [embedded(JOB), failed(JOB)], ids=["embedded", "failed"])
def test_every_kind_of_result_fits_the_endpoint(orchestrator: Orchestrator, result: StageResult) -> None:
    assert Sender(orchestrator.url).notify(result) == "http"


def test_a_recovered_orchestrator_gets_the_result_by_http(orchestrator: Orchestrator) -> None:
    orchestrator.answers = [(503, {"Retry-After": "7"}), (409, {}), (429, {"Retry-After": "900"}), (200, {})]
    sender = Sender(orchestrator.url)
    assert sender.notify(embedded(JOB)) == "http"
    assert len(orchestrator.asked) == 4
    assert len({body["message_id"] for _, _, body in orchestrator.asked}) == 1
    first, second, third = sender.pauses
    assert first >= 7
    assert second <= 1
    assert third == 30


@pytest.mark.parametrize("status", [500, 503, 409])
def test_an_unavailable_orchestrator_finds_the_result_in_its_queue(
    orchestrator: Orchestrator, status: int
) -> None:
    orchestrator.answers = [(status, {})]
    sender, result = Sender(orchestrator.url), embedded(JOB)
    assert sender.notify(result) == "queue"
    assert (len(orchestrator.asked), len(sender.pauses)) == (5, 4)
    assert [read(StageResult, body) for body in sender.queue.bodies] == [result]


@pytest.mark.parametrize("status", [400, 401, 403, 413, 422])
def test_a_result_that_http_refuses_goes_to_the_queue_at_once(
    orchestrator: Orchestrator, status: int
) -> None:
    orchestrator.answers = [(status, {})]
    sender = Sender(orchestrator.url)
    assert sender.notify(embedded(JOB)) == "queue"
    assert (len(orchestrator.asked), len(sender.queue.bodies)) == (1, 1)


def test_a_result_of_an_unknown_job_is_delivered(orchestrator: Orchestrator) -> None:
    orchestrator.answers = [(404, {})]
    sender = Sender(orchestrator.url)
    assert sender.notify(embedded(JOB)) == "http"
    assert (len(orchestrator.asked), sender.queue.bodies) == (1, [])


def test_a_refused_connection_is_an_outage_like_any_other() -> None:
    sender = Sender("http://127.0.0.1:1")
    assert sender.notify(embedded(JOB)) == "queue"
    assert len(sender.queue.bodies) == 1
    sender.queue.refuse = {0}
    with pytest.raises(TransientError):
        sender.notify(embedded(JOB))
    sender.queue.unavailable = True
    with pytest.raises(TransientError):
        sender.notify(embedded(JOB))


def test_what_is_kept_elsewhere_goes_by_the_queue(orchestrator: Orchestrator) -> None:
    result = scraped(JOB)
    assert result.document is not None
    ref = BlobRef(key="text/00/a", size=1, sha256="0" * 64)
    stored = result.document.model_copy(update={"text": None, "text_ref": ref})
    sender = Sender(orchestrator.url)
    assert sender.notify(result.model_copy(update={"document": stored})) == "queue"
    assert orchestrator.asked == []

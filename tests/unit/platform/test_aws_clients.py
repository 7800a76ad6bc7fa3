"""Clients of AWS end what is not answered: each has limits for the connection, the answer and the tries."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from indexmill.platform.aws.clients import DirectTimes, _made, client

LONGEST_S = 10.0
"""What one try may wait for an answer, of any client."""


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """A server that takes connections and answers nothing; the connections that it took."""
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}"),
            ("AWS_DEFAULT_REGION", "eu-west-1"),
            ("AWS_ACCESS_KEY_ID", "local"),
            ("AWS_SECRET_ACCESS_KEY", "local"),
        ):
            monkeypatch.setenv(name, value)
        _made.cache_clear()
        yield taken
        server.shutdown(socket.SHUT_RDWR)
    _made.cache_clear()
    for each in taken:
        each.close()


@pytest.mark.shows("S25")
@pytest.mark.parametrize("service", ["s3", "sqs", "dynamodb", "lambda", "secretsmanager"])
@pytest.mark.parametrize("kind", [{}, {"quick": True}, {"read_timeout_s": 3.0}, {"signs_urls": True}])
@pytest.mark.usefixtures("silent")
def test_every_client_has_limits(service: str, kind: dict[str, object]) -> None:
    """Without a limit botocore waits a minute for each of a connection and an answer, four times."""
    config = client(service, **kind).meta.config  # type: ignore[arg-type]
    assert config.connect_timeout <= 2
    assert config.read_timeout <= LONGEST_S
    assert config.retries["total_max_attempts"] <= 4


@pytest.mark.shows("S25")
def test_a_service_that_does_not_answer_is_given_up(silent: list[socket.socket]) -> None:
    began = time.monotonic()
    with pytest.raises(ReadTimeoutError):
        client("sqs", quick=True).list_queues()
    assert len(silent) == 1
    assert time.monotonic() - began < LONGEST_S


@pytest.mark.shows("S25")
def test_a_direct_request_that_is_not_answered_is_given_up(silent: list[socket.socket]) -> None:
    dynamodb = client("dynamodb", direct=DirectTimes(0.5, 0.2))
    began = time.monotonic()
    with pytest.raises(EndpointConnectionError):
        dynamodb.get_item(TableName="state", Key={"pk": {"S": "x"}})
    assert len(silent) == 1
    assert time.monotonic() - began < LONGEST_S

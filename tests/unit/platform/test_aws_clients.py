"""Clients of AWS end what is not answered: each has limits for the connection, the answer and the tries."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from botocore.exceptions import ReadTimeoutError

from indexmill.platform.aws.clients import QUICK, CallLimits, _made, client

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
@pytest.mark.parametrize("limits", [CallLimits(), QUICK, CallLimits(answer_s=3.0)])
@pytest.mark.parametrize(("service", "signs"), [("s3", True), ("lambda", False), ("secretsmanager", False)])
@pytest.mark.usefixtures("silent")
def test_every_client_of_boto3_has_limits(service: str, signs: bool, limits: CallLimits) -> None:
    """Without a limit botocore waits a minute for each of a connection and an answer, four times."""
    config = client(service, limits=limits, signs_urls=signs).meta.config
    assert config.connect_timeout == limits.connect_s <= 2
    assert config.read_timeout == limits.answer_s <= LONGEST_S
    assert config.retries["total_max_attempts"] == limits.tries <= 4


@pytest.mark.shows("S25")
@pytest.mark.parametrize(
    ("service", "operation"),
    [("sqs", "list_queues"), ("dynamodb", "list_tables"), ("lambda", "list_functions"), ("s3", "get_object")],
)
@pytest.mark.parametrize("tries", [1, 2])
def test_a_service_that_does_not_answer_is_given_up(
    silent: list[socket.socket], service: str, operation: str, tries: int
) -> None:
    began = time.monotonic()
    asked = {"Bucket": "bucket", "Key": "key"} if service == "s3" else {}
    with pytest.raises(ReadTimeoutError):
        getattr(client(service, limits=CallLimits(0.5, 0.2, tries)), operation)(**asked)
    assert len(silent) == tries
    assert time.monotonic() - began < LONGEST_S

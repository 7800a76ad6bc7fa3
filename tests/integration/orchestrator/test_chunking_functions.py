"""What a real function does to a call of Chunking, and whether that is an outage or the documents' own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
import pytest_asyncio
from botocore.config import Config

from indexmill.contracts.errors import TransientError
from indexmill.contracts.messages import ChunkCall, ChunkItem, ChunkReply
from indexmill.orchestrator.adapters.lambda_chunker import LambdaChunker
from indexmill.orchestrator.ports_chunking import ChunkerAway
from local.compute.invoke_api import InvokeApi
from tests.integration.compute.harness import REGION, Lab

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

ONE = ChunkCall(items=[ChunkItem(text="Some words.")], inline_limit=50_000)
ANSWERS = """
def handler(event, context):
    return {"items": [{"chunk_count": 0} for item in event["items"]]}
"""
Start = Callable[..., Awaitable[LambdaChunker]]


def client(url: str) -> Any:
    made: Any = boto3.Session(aws_access_key_id="x", aws_secret_access_key="y", region_name=REGION).client
    return made("lambda", endpoint_url=url, config=Config(retries={"total_max_attempts": 1}))


@pytest_asyncio.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Serve one function with that code; `called` is the name by which it is called."""
    lab, apis = Lab(tmp_path), []

    async def serve(code: str, called: str = "fn", *, stopped: bool = False, **spec: Any) -> LambdaChunker:
        host = await lab.start(lab.function(code, **spec))
        apis.append(InvokeApi(host))
        url = await apis[-1].start()
        if stopped:
            await apis.pop().stop()
        return LambdaChunker(called, timeout_s=20, lambda_client=client(url))

    yield serve
    for api in apis:
        await api.stop()
    await lab.close()


async def ask(chunker: LambdaChunker, call: ChunkCall = ONE) -> ChunkReply:
    return await asyncio.to_thread(chunker.chunk, call)


AWAY: dict[str, dict[str, Any]] = {
    "a module that is not there": {"code": "import no_such_module"},
    "code that is no Python": {"code": "def handler(:"},
    "a handler that is not there": {"code": "", "handler": "app.nothing"},
    "a handler without a name": {"code": "", "handler": "app"},
    "an initialisation that raises": {"code": "raise LookupError('a variable')"},
    "no concurrency": {"code": ANSWERS, "reserved_concurrency": 0},
    "no such function": {"code": ANSWERS, "called": "another"},
    "nobody who listens": {"code": ANSWERS, "stopped": True},
}


@pytest.mark.fault("F76")
@pytest.mark.parametrize("kind", AWAY)
async def test_a_function_that_takes_no_call_is_away(start: Start, kind: str) -> None:
    chunker = await start(**AWAY[kind])
    with pytest.raises(ChunkerAway):
        await ask(chunker)


DIED: dict[str, dict[str, Any]] = {
    "raises": {"code": "def handler(event, context):\n    raise LookupError('no')"},
    "exits": {"code": "import os\ndef handler(event, context):\n    os._exit(1)"},
    "takes too long": {
        "code": "import time\ndef handler(event, context):\n    time.sleep(60)",
        "timeout_s": 1,
    },
    "answers for fewer documents": {"code": "def handler(event, context):\n    return {'items': []}"},
    "answers something else": {"code": "def handler(event, context):\n    return [1]"},
}


@pytest.mark.fault("F77")
@pytest.mark.parametrize("kind", DIED)
async def test_a_call_that_was_taken_and_came_to_no_good_end_is_a_try(start: Start, kind: str) -> None:
    chunker = await start(**DIED[kind])
    with pytest.raises(TransientError) as raised:
        await ask(chunker)
    assert not isinstance(raised.value, ChunkerAway)
    assert raised.value.code == "chunking_unavailable"


@pytest.mark.fault("F77")
async def test_a_call_that_lambda_refuses_for_its_size_is_a_try(start: Start) -> None:
    chunker = await start(ANSWERS)
    with pytest.raises(TransientError) as raised:
        await ask(chunker, ChunkCall(items=[ChunkItem(text="x" * 7_000_000)], inline_limit=1))
    assert not isinstance(raised.value, ChunkerAway)


async def test_a_call_without_documents_is_answered(start: Start) -> None:
    chunker = await start(ANSWERS)
    assert (await ask(chunker, ChunkCall(items=[], inline_limit=1))).items == []
    assert len((await ask(chunker)).items) == 1

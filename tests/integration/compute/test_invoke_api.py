"""The lambda client of the AWS SDK against the host."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import pytest_asyncio
from botocore.config import Config
from botocore.exceptions import ClientError

from local.compute.error_documents import MAX_REQUEST_BYTES
from local.compute.host import LambdaHost
from local.compute.invoke_api import InvokeApi
from local.template.spec import FunctionSpec
from tests.integration.compute.harness import ACCOUNT, REGION, Lab, alive, answer, noted_pid, until

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

HANDLER = """
import os
import time

def handler(event, context):
    print("given", event)
    if "raise" in event:
        raise LookupError(event["raise"])
    if "exit" in event:
        os._exit(1)
    if "note" in event:
        with open(event["note"], "a") as note:
            note.write(str(os.getpid()) + " ")
    while "until" in event and not os.path.exists(event["until"]):
        time.sleep(0.005)
    return {"event": event, "trace": os.environ.get("_X_AMZN_TRACE_ID")}
"""


@functools.cache
def _session() -> boto3.Session:
    """Return one session for all tests: reading the service's description is slow."""
    return boto3.Session(aws_access_key_id="x", aws_secret_access_key="y", region_name=REGION)


class Caller:
    """boto3's client, off the event loop's thread; no retries, so that each error is seen."""

    def __init__(self, host: LambdaHost, url: str) -> None:
        self.host = host
        config = Config(retries={"total_max_attempts": 1}, max_pool_connections=20)
        self._client: LambdaClient = _session().client("lambda", endpoint_url=url, config=config)

    async def invoke(self, event: Any = None, name: str = "fn", **arguments: Any) -> dict[str, Any]:
        """Return the response, with the payload read."""
        payload = event if isinstance(event, bytes) else json.dumps(event or {}).encode()

        def send() -> dict[str, Any]:
            answered: Any = self._client.invoke(FunctionName=name, Payload=payload, **arguments)
            return {**answered, "Payload": answered["Payload"].read()}

        return await asyncio.to_thread(send)

    async def refused(self, event: Any = None, name: str = "fn", **arguments: Any) -> tuple[int, str, str]:
        """Return the status, code and message of an error."""
        with pytest.raises(ClientError) as caught:
            await self.invoke(event, name, **arguments)
        found = caught.value.response
        return found["ResponseMetadata"]["HTTPStatusCode"], found["Error"]["Code"], found["Error"]["Message"]

    def close(self) -> None:
        self._client.close()


Connect = Callable[..., Awaitable[Caller]]


@pytest_asyncio.fixture
async def connect(forking: Lab) -> AsyncIterator[Connect]:
    """Start a host and the API in front of it; the API ends before the host."""
    apis: list[InvokeApi] = []
    callers: list[Caller] = []

    async def start(*functions: FunctionSpec, **options: Any) -> Caller:
        host = await forking.start(*functions, **options)
        apis.append(InvokeApi(host))
        callers.append(Caller(host, await apis[-1].start()))
        return callers[-1]

    yield start
    for caller in callers:
        caller.close()
    for api in apis:
        await api.stop()


async def test_a_result_comes_with_its_metadata(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER))
    found = await caller.invoke({"name": "ä"})
    assert (found["StatusCode"], found["ExecutedVersion"]) == (200, "$LATEST")
    assert json.loads(found["Payload"])["event"] == {"name": "ä"}
    assert "FunctionError" not in found
    assert "LogResult" not in found
    request_id = found["ResponseMetadata"]["RequestId"]
    assert forking.lines("platform", request_id)[0].startswith("START")


@pytest.mark.parametrize(
    "name",
    [
        "fn",
        "FnFunction",
        "fn:$LATEST",
        f"{ACCOUNT}:function:fn",
        f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:fn",
        f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:fn:$LATEST",
    ],
)
async def test_a_function_has_many_names(forking: Lab, connect: Connect, name: str) -> None:
    caller = await connect(forking.function(HANDLER))
    assert (await caller.invoke({}, name))["StatusCode"] == 200


async def test_function_errors_are_answers(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER))
    for event, kind in (({"raise": "no such shelf"}, "LookupError"), ({"exit": 1}, "Runtime.ExitError")):
        found = await caller.invoke(event)
        assert (found["StatusCode"], found["FunctionError"]) == (200, "Unhandled")
        assert json.loads(found["Payload"])["errorType"] == kind
        assert "FunctionError" not in await caller.invoke()


async def test_the_tail_of_the_log_comes_on_request(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER))
    found = await caller.invoke({"name": "tail"}, LogType="Tail")
    lines = base64.b64decode(found["LogResult"]).decode().splitlines()
    assert lines[1] == "given {'name': 'tail'}"
    assert [line.split()[0] for line in lines] == ["START", "given", "END", "REPORT"]
    assert "LogResult" not in await caller.invoke({}, LogType="None")


async def test_an_event_is_accepted_before_it_runs(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER))
    note, go = forking.folder / "note", forking.folder / "go"
    found = await caller.invoke({"note": str(note), "until": str(go)}, InvocationType="Event")
    assert (found["StatusCode"], found["Payload"]) == (202, b"")
    await until(lambda: note.exists() and note.read_text())
    assert caller.host.stats()["fn"].busy == 1
    go.touch()
    await until(lambda: caller.host.stats()["fn"].invocations == 1)
    assert caller.host.stats()["fn"].errors == 0


async def test_a_failed_event_is_logged(
    forking: Lab, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caller = await connect(forking.function(HANDLER))
    await caller.invoke({"raise": "no such shelf"}, InvocationType="Event")
    await until(lambda: "event for fn failed" in caplog.text)
    assert "no such shelf" in caplog.text
    assert (await caller.invoke())["StatusCode"] == 200


async def test_a_throttled_event_runs_later(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER, reserved_concurrency=1))
    go = forking.folder / "go"
    running = asyncio.ensure_future(caller.invoke({"until": str(go)}))
    await until(lambda: caller.host.stats()["fn"].busy)
    assert (await caller.invoke({}, InvocationType="Event"))["StatusCode"] == 202
    await until(lambda: caller.host.stats()["fn"].throttles)
    go.touch()
    assert (await running)["StatusCode"] == 200
    await until(lambda: caller.host.stats()["fn"].invocations == 2)


async def test_a_dry_run_runs_nothing(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER))
    assert (await caller.invoke({}, InvocationType="DryRun"))["StatusCode"] == 204
    assert caller.host.stats()["fn"].environments == 0
    assert (await caller.refused({}, "other", InvocationType="DryRun"))[0] == 404


async def test_an_unknown_function_is_404(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER))
    status, code, message = await caller.refused({}, "other")
    assert (status, code) == (404, "ResourceNotFoundException")
    assert message == f"Function not found: arn:aws:lambda:{REGION}:{ACCOUNT}:function:other"
    assert (await caller.invoke())["StatusCode"] == 200


async def test_a_throttled_call_is_429(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER, reserved_concurrency=1))
    go = forking.folder / "go"
    running = asyncio.ensure_future(caller.invoke({"until": str(go)}))
    await until(lambda: caller.host.stats()["fn"].busy)
    assert await caller.refused() == (429, "TooManyRequestsException", "Rate Exceeded.")
    go.touch()
    await running
    assert (await caller.invoke())["StatusCode"] == 200


async def test_bad_and_large_payloads_are_refused(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER))
    status, code, message = await caller.refused(b"{")
    assert (status, code) == (400, "InvalidRequestContentException")
    assert message.startswith("Could not parse request body into json: ")
    large = b'"' + b"x" * (MAX_REQUEST_BYTES - 1) + b'"'
    assert (await caller.refused(large))[:2] == (413, "RequestTooLargeException")
    event = b'"' + b"x" * (1 << 20) + b'"'
    assert (await caller.refused(event, InvocationType="Event"))[:2] == (413, "RequestTooLargeException")
    assert caller.host.stats()["fn"].invocations == 0
    assert (await caller.invoke())["StatusCode"] == 200


async def test_calls_at_once_run_at_once(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER))
    notes, go = forking.folder / "notes", forking.folder / "go"
    event = {"note": str(notes), "until": str(go)}
    calls = [asyncio.ensure_future(caller.invoke(event)) for _ in range(4)]
    await until(lambda: notes.exists() and len(notes.read_text().split()) == 4)
    go.touch()
    assert {found["StatusCode"] for found in await asyncio.gather(*calls)} == {200}
    assert len(set(notes.read_text().split())) == 4


async def test_a_call_after_the_host_stopped_is_a_service_error(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER))
    note = forking.folder / "note"
    await caller.invoke({"note": str(note)})
    await caller.host.stop()
    await until(lambda: not alive(noted_pid(note)))
    assert (await caller.refused())[:2] == (503, "ServiceException")


async def test_stopping_the_api_drops_events_that_wait(forking: Lab, connect: Connect) -> None:
    caller = await connect(forking.function(HANDLER, reserved_concurrency=0))
    assert (await caller.invoke({}, InvocationType="Event"))["StatusCode"] == 202
    await until(lambda: caller.host.stats()["fn"].throttles)
    assert caller.host.stats()["fn"].invocations == 0
    with pytest.raises(KeyError):
        await answer(caller.host, function="other")

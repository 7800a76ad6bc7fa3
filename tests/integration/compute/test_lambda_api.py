"""Functions and event source mappings through the lambda client of the AWS SDK."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import pytest_asyncio
from botocore.config import Config
from botocore.exceptions import ClientError

from local.compute.host import LambdaHost
from local.compute.invoke_api import InvokeApi
from local.compute.lambda_mappings import EventSourceMappings
from local.stack.runtime import python_differences
from local.template.spec import SqsSourceSpec
from tests.integration.compute.harness import ACCOUNT, REGION, Lab

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

ARN = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function"


@functools.cache
def _session() -> boto3.Session:
    return boto3.Session(aws_access_key_id="x", aws_secret_access_key="y", region_name=REGION)


class IdleSource:
    """Event source that polls nothing: only its configuration is used by the API."""

    def __init__(self, function: str, queue: str, **spec: Any) -> None:
        self.spec = SqsSourceSpec(f"{function}{queue}", function, queue, **spec)
        self.queue_arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}"
        self.busy = False
        self.enabled = True

    def configure(self, spec: SqsSourceSpec) -> None:
        self.spec = spec


class Api:
    """The client, off the event loop's thread; no retries, so that each error is seen."""

    def __init__(self, host: LambdaHost, mappings: EventSourceMappings, url: str) -> None:
        self.host = host
        self.mappings = mappings
        self._client: LambdaClient = _session().client(
            "lambda", endpoint_url=url, config=Config(retries={"total_max_attempts": 1})
        )

    async def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        answer = await asyncio.to_thread(getattr(self._client, operation), **arguments)
        return {key: value for key, value in answer.items() if key != "ResponseMetadata"}

    async def pages(self, operation: str, key: str, size: int) -> list[list[Any]]:
        def read() -> list[list[Any]]:
            paginator: Any = self._client.get_paginator(operation)  # type: ignore[call-overload]
            return [part[key] for part in paginator.paginate(PaginationConfig={"PageSize": size})]

        return await asyncio.to_thread(read)

    async def refused(self, operation: str, **arguments: Any) -> tuple[int, str]:
        with pytest.raises(ClientError) as caught:
            await self.ask(operation, **arguments)
        found = caught.value.response
        return found["ResponseMetadata"]["HTTPStatusCode"], found["Error"]["Code"]

    def close(self) -> None:
        self._client.close()


@pytest_asyncio.fixture
async def api(forking: Lab) -> AsyncIterator[Api]:
    """Yield an API with three functions; the first has settings of its own."""
    layer = forking.folder / "layers" / "tools"
    forking.write("layers/tools/python/tool.py", "")
    host = await forking.start(
        forking.function(
            name="one",
            layer_dirs=(layer,),
            environment={"COLOUR": "green"},
            reserved_concurrency=7,
            runtime="python3.13",
            timeout_s=42,
            memory_mb=512,
        ),
        forking.function(name="two"),
        forking.function(name="three"),
    )
    mappings = EventSourceMappings(host)
    served = InvokeApi(host, mappings)
    made = Api(host, mappings, await served.start())
    yield made
    made.close()
    await served.stop()


async def test_a_functions_configuration_is_the_templates(forking: Lab, api: Api) -> None:
    code = forking.folder / "code" / "one" / "app.py"
    os.utime(code, (1_700_000_000, 1_700_000_000))
    found = await api.ask("get_function_configuration", FunctionName="one")
    assert found == {
        "FunctionName": "one",
        "FunctionArn": f"{ARN}:one",
        "Runtime": "python3.13",
        "Handler": "app.handler",
        "Timeout": 42,
        "MemorySize": 512,
        "Environment": {"Variables": {"COLOUR": "green"}},
        "Layers": [{"Arn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:layer:tools:1"}],
        "LastModified": "2023-11-14T22:13:20.000+0000",
        "PackageType": "Zip",
        "Version": "$LATEST",
        "State": "Active",
        "LastUpdateStatus": "Successful",
    }
    whole = await api.ask("get_function", FunctionName=f"{ARN}:one:$LATEST")
    assert whole["Configuration"] == found
    assert whole["Code"]["Location"] == code.parent.resolve().as_uri()
    assert whole["Concurrency"] == {"ReservedConcurrentExecutions": 7}


async def test_reserved_concurrency_is_listed_only_where_there_is_one(api: Api) -> None:
    assert await api.ask("get_function_concurrency", FunctionName="one") == {
        "ReservedConcurrentExecutions": 7
    }
    assert await api.ask("get_function_concurrency", FunctionName="two") == {}


async def test_functions_are_listed_in_pages(api: Api) -> None:
    found = await api.pages("list_functions", "Functions", 2)
    assert [[each["FunctionName"] for each in part] for part in found] == [["one", "three"], ["two"]]
    assert "NextMarker" not in await api.ask("list_functions")


@pytest.mark.parametrize(
    "operation", ["get_function", "get_function_configuration", "get_function_concurrency"]
)
async def test_an_unknown_function_is_404(api: Api, operation: str) -> None:
    assert await api.refused(operation, FunctionName="other") == (404, "ResourceNotFoundException")


async def test_mappings_are_found_by_function_and_by_queue(api: Api) -> None:
    sources = [IdleSource("one", "a"), IdleSource("one", "b"), IdleSource("TwoFunction", "a")]
    ids = [api.mappings.add(source) for source in sources]
    assert len(set(ids)) == 3
    assert [str(uuid.UUID(each)) for each in ids] == ids

    async def listed(**query: Any) -> list[str]:
        found = await api.ask("list_event_source_mappings", **query)
        return [each["UUID"] for each in found["EventSourceMappings"]]

    queue = sources[0].queue_arn
    assert await listed() == ids
    assert await listed(FunctionName="one") == await listed(FunctionName=f"{ARN}:one") == ids[:2]
    assert await listed(FunctionName="two") == ids[2:]
    assert await listed(EventSourceArn=queue) == [ids[0], ids[2]]
    assert await listed(EventSourceArn=queue, FunctionName="two") == ids[2:]
    assert await listed(EventSourceArn=queue + "x") == []
    parts = await api.pages("list_event_source_mappings", "EventSourceMappings", 2)
    assert [[each["UUID"] for each in part] for part in parts] == [ids[:2], ids[2:]]
    missing = await api.refused("list_event_source_mappings", FunctionName="other")
    assert missing == (404, "ResourceNotFoundException")


async def test_a_mapping_is_shown_as_it_is_set_up(api: Api) -> None:
    source = IdleSource(
        "one", "a", batch_size=7, window_s=2, maximum_concurrency=3, report_batch_item_failures=True
    )
    mapping_id = api.mappings.add(source)
    found = await api.ask("get_event_source_mapping", UUID=mapping_id)
    made = found.pop("LastModified")
    assert made > datetime(2026, 1, 1, tzinfo=UTC)
    assert found == {
        "UUID": mapping_id,
        "EventSourceMappingArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:event-source-mapping:{mapping_id}",
        "EventSourceArn": source.queue_arn,
        "FunctionArn": f"{ARN}:one",
        "BatchSize": 7,
        "MaximumBatchingWindowInSeconds": 2,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": {"MaximumConcurrency": 3},
        "State": "Enabled",
        "StateTransitionReason": "USER_INITIATED",
    }


async def test_a_mapping_has_the_same_uuid_after_a_restart(api: Api) -> None:
    first = api.mappings.add(IdleSource("one", "a"))
    assert EventSourceMappings(api.host).add(IdleSource("one", "a", batch_size=2)) == first


async def test_a_mapping_that_is_switched_off_is_disabling_while_it_is_busy(api: Api) -> None:
    source = IdleSource("one", "a")
    mapping_id = api.mappings.add(source)
    source.busy = True
    found = await api.ask("update_event_source_mapping", UUID=mapping_id, Enabled=False)
    assert (found["State"], source.enabled) == ("Disabling", False)
    source.busy = False
    assert (await api.ask("get_event_source_mapping", UUID=mapping_id))["State"] == "Disabled"
    again = await api.ask("update_event_source_mapping", UUID=mapping_id, Enabled=True)
    assert (again["State"], source.enabled) == ("Enabled", True)
    assert again["LastModified"] >= found["LastModified"]


async def test_batches_and_concurrency_are_changed_and_the_rest_stays(api: Api) -> None:
    source = IdleSource("one", "a", report_batch_item_failures=True)
    mapping_id, before = api.mappings.add(source), source.spec
    await api.ask(
        "update_event_source_mapping",
        UUID=mapping_id,
        BatchSize=50,
        MaximumBatchingWindowInSeconds=5,
        ScalingConfig={"MaximumConcurrency": 4},
    )
    assert source.spec == replace(before, batch_size=50, window_s=5.0, maximum_concurrency=4)
    found = await api.ask("update_event_source_mapping", UUID=mapping_id, ScalingConfig={})
    assert source.spec.maximum_concurrency is None
    assert (found["BatchSize"], found["ScalingConfig"], found["State"]) == (50, {}, "Enabled")


@pytest.mark.parametrize(
    "change",
    [
        {"BatchSize": 11},
        {"BatchSize": 11, "MaximumBatchingWindowInSeconds": 0},
        {"ScalingConfig": {"MaximumConcurrency": 1001}},
        {"FunctionName": "two"},
        {"FilterCriteria": {"Filters": [{"Pattern": "{}"}]}},
    ],
)
async def test_a_change_that_cannot_be_made_is_refused_and_changes_nothing(
    api: Api, change: dict[str, Any]
) -> None:
    source = IdleSource("one", "a")
    mapping_id, before = api.mappings.add(source), source.spec
    refused = await api.refused("update_event_source_mapping", UUID=mapping_id, Enabled=False, **change)
    assert refused == (400, "InvalidParameterValueException")
    assert (source.spec, source.enabled) == (before, True)


async def test_an_unknown_mapping_is_404(api: Api) -> None:
    for operation in ("get_event_source_mapping", "update_event_source_mapping"):
        refused = await api.refused(operation, UUID=str(uuid.uuid4()))
        assert refused == (404, "ResourceNotFoundException")


async def test_what_the_template_decides_cannot_be_done_by_the_api(api: Api) -> None:
    for operation, arguments in (
        ("create_event_source_mapping", {"FunctionName": "one", "EventSourceArn": "arn:aws:sqs:x:1:q"}),
        ("delete_function", {"FunctionName": "one"}),
    ):
        assert (await api.refused(operation, **arguments))[0] == 404
    assert json.loads((await api.host.invoke("one", b"{}")).payload)["event"] == {}


def test_a_python_other_than_the_templates_is_reported(forking: Lab) -> None:
    specs = [forking.function(name=name, runtime="python3.13") for name in ("one", "two")]
    assert python_differences(specs, "3.11") == ["functions run on Python 3.11 here, python3.13 on AWS"]
    assert python_differences(specs, "3.13") == []

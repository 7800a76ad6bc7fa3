"""Record of which function calls what on which AWS resource, to compare with what its role allows.

With the variable `RECORD_AWS_CALLS` set to a folder, every process of a function appends each call to a file
of its own there when it makes it for the first time: a line of JSON with function, action
(`sqs:SendMessage`) and resource (`ScrapeQueue`, `ContentBucket/raw`, `StateTable/breaker`; an event source
mapping by the variable that has its id, `SCRAPE_MAPPING_ID`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "RECORD_AWS_CALLS"
_STACK: Final = "indexmill-"
_BATCHES: Final = re.compile(
    r"(?<=SendMessage)Batch|(?<=DeleteMessage)Batch|(?<=ChangeMessageVisibility)Batch"
)

_ACTIONS: Final = {"Invoke": "lambda:InvokeFunction", "HeadObject": "s3:GetObject"}
"""Actions that are not named as the operation is."""


def install() -> None:
    """Wrap the clients of AWS in this process, before the function's module is imported."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    function = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "").removeprefix(_STACK)
    seen: set[tuple[str, str]] = set()

    def record(service: str, operation: str, parameters: dict[str, Any], make: Callable[[], Any]) -> Any:
        for call in calls(service, operation, parameters):
            if call not in seen:
                seen.add(call)
                _append(Path(folder), function, call)
        return make()

    wrap_clients(record)


def wrap_clients(around: Callable[[str, str, dict[str, Any], Callable[[], Any]], Any]) -> None:
    """Answer each call of boto3's clients and of the project's own with `around(service, operation, ...)`.

    Its last argument makes the call.
    """
    from botocore import client

    classes: list[Any] = [client.BaseClient]
    # A handler may have no layer.
    with suppress(ImportError):
        classes.append(import_module("indexmill.platform.aws.clients").DirectClient)
    for each in classes:
        _wrap(each, around)


def _wrap(base: Any, around: Callable[..., Any]) -> None:
    original = base._make_api_call

    def make_api_call(self: Any, operation_name: str, api_params: dict[str, Any]) -> Any:
        meta = self.__dict__.get("meta")
        service = self.service if meta is None else meta.service_model.service_name
        make = partial(original, self, operation_name, api_params)
        return around(service, operation_name, api_params, make)

    base._make_api_call = make_api_call


def calls(service: str, operation: str, parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the IAM action and the resource of each object that a call names."""
    action = f"{service}:{_BATCHES.sub('', operation)}"
    if operation in _ACTIONS:
        action = _ACTIONS[operation]
    for resource in _resources(parameters):
        yield action, resource


def _resources(parameters: Mapping[str, Any]) -> Iterator[str]:
    if "QueueUrl" in parameters:
        yield str(parameters["QueueUrl"]).rpartition("/")[2].removeprefix(_STACK)
    elif "Bucket" in parameters:
        yield "ContentBucket/" + str(parameters.get("Key", "")).partition("/")[0]
    elif "FunctionName" in parameters:
        # A name, or an ARN that may end in an alias.
        name = re.sub(r"^.*:function:", "", str(parameters["FunctionName"]))
        yield re.sub(r":(.*)", ".Alias", name).removeprefix(_STACK)
    elif "RequestItems" in parameters:
        for items in parameters["RequestItems"].values():
            for item in (
                items["Keys"] if isinstance(items, dict) else (each["PutRequest"]["Item"] for each in items)
            ):
                yield _item(item)
    elif "TableName" in parameters:
        yield _item(parameters.get("Item") or parameters["Key"])
    else:
        value = parameters.get("UUID") or parameters.get("SecretId")
        yield from (name for name, each in os.environ.items() if each == value)


def _item(item: Mapping[str, Any]) -> str:
    return "StateTable/" + str(item["pk"]["S"]).partition("#")[0]


def _append(folder: Path, function: str, call: tuple[str, str]) -> None:
    action, resource = call
    line = json.dumps({"function": function, "action": action, "resource": resource})
    with (folder / f"{function}-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")

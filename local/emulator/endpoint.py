"""What the deployment asks of the emulator, all of it AWS's own API."""

from __future__ import annotations

import base64
import io
import json
import urllib.request
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_FETCH_S: Final = 60.0


class EmulatorFailed(RuntimeError):
    """The emulator could not do what the deployment needs."""


class Emulator:
    """An emulator at `endpoint`, without a slash at its end, and one region of it."""

    def __init__(self, endpoint: str, region: str) -> None:
        import boto3

        self.endpoint = endpoint
        self._session = boto3.Session(
            aws_access_key_id="test", aws_secret_access_key="test", region_name=region
        )

    def keep_secret(self, name: str, value: str) -> str:
        """Make the secret `name`, or give it another value; returns its ARN."""
        secrets = self._client("secretsmanager")
        try:
            return str(secrets.create_secret(Name=name, SecretString=value)["ARN"])
        except secrets.exceptions.ResourceExistsException:
            return str(secrets.put_secret_value(SecretId=name, SecretString=value)["ARN"])

    def resources(self, stack: str) -> dict[str, str]:
        """Physical ids by logical ids."""
        found = self._client("cloudformation").describe_stack_resources(StackName=stack)["StackResources"]
        return {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found}

    def api_url(self, api_id: str, stage: str) -> str:
        """Where a stage of a REST API answers, in the form that needs no DNS."""
        return f"{self.endpoint}/restapis/{api_id}/{stage}/_user_request_"

    def layers(self, function: str) -> list[str]:
        """The ARNs of the layer versions that a function was deployed with."""
        found = self._client("lambda").get_function_configuration(FunctionName=function)
        return [layer["Arn"] for layer in found.get("Layers", ())]

    def restate_concurrency(self) -> None:
        """Tell each queue's event source mapping its own MaximumConcurrency again, as a number.

        CloudFormation hands on a Number parameter as text. AWS makes a number of it, MiniStack 1.5.33 does
        not, and one mapping with a text stops its poller for all of them.
        """
        functions = self._client("lambda")
        for page in functions.get_paginator("list_event_source_mappings").paginate():
            for mapping in page["EventSourceMappings"]:
                if limit := mapping.get("ScalingConfig", {}).get("MaximumConcurrency"):
                    functions.update_event_source_mapping(
                        UUID=mapping["UUID"], ScalingConfig={"MaximumConcurrency": int(limit)}
                    )

    def unpack_layer(self, arn: str, folder: Path) -> Path:
        """Unpack a deployed layer version below `folder`, once for each content; returns where it lies."""
        content = self._client("lambda").get_layer_version_by_arn(Arn=arn)["Content"]
        unpacked = folder / base64.b64decode(content["CodeSha256"]).hex()
        if not unpacked.exists():
            # The emulator names a place of its own, whatever its scheme.
            with urllib.request.urlopen(content["Location"], timeout=_FETCH_S) as answer:  # noqa: S310
                packed = io.BytesIO(answer.read())
            draft = unpacked.with_suffix(".part")
            with zipfile.ZipFile(packed) as archive:
                archive.extractall(draft)
            draft.rename(unpacked)
        return unpacked

    def invoke(self, function: str, event: Mapping[str, Any]) -> Any:
        """Invoke a function and wait for its result. Raises EmulatorFailed when it ends with an error."""
        answer = self._client("lambda").invoke(FunctionName=function, Payload=json.dumps(event))
        result = json.load(answer["Payload"])
        if "FunctionError" in answer:
            raise EmulatorFailed(f"{function} failed: {json.dumps(result)}")
        return result

    def _client(self, service: str) -> Any:
        from botocore.config import Config

        # One call may wait for a function's first start and its whole work.
        config = Config(read_timeout=300, retries={"max_attempts": 0})
        return self._session.client(service, endpoint_url=self.endpoint, config=config)  # type: ignore[call-overload]

"""Client of the emulator: the AWS API calls of the deployment."""

from __future__ import annotations

import base64
import io
import urllib.request
import zipfile
from pathlib import Path
from typing import Any, Final

from local.backends.ministack_resources import put_secret

_FETCH_S: Final = 60.0


class EmulatorFailed(RuntimeError):
    """Raised when the emulator could not do what the deployment needs."""


class Emulator:
    """Emulator at `endpoint`, without a trailing slash, and one region of it."""

    def __init__(self, endpoint: str, region: str) -> None:
        import boto3

        self.endpoint = endpoint
        self._session = boto3.Session(
            aws_access_key_id="test", aws_secret_access_key="test", region_name=region
        )

    def put_secret(self, name: str, value: str) -> str:
        """Create or update the secret `name`; returns its ARN."""
        return put_secret(self._client("secretsmanager"), name, value)

    def resources(self, stack: str) -> dict[str, str]:
        """Return physical ids by logical ids."""
        found = self._client("cloudformation").describe_stack_resources(StackName=stack)["StackResources"]
        return {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found}

    def api_url(self, api_id: str, stage: str) -> str:
        """Return the URL of a stage of a REST API, in the form that needs no DNS."""
        return f"{self.endpoint}/restapis/{api_id}/{stage}/_user_request_"

    def layers(self, function: str) -> list[str]:
        """Return the ARNs of the layer versions that a function was deployed with."""
        found = self._client("lambda").get_function_configuration(FunctionName=function)
        return [layer["Arn"] for layer in found.get("Layers", ())]

    def reset_concurrency(self) -> None:
        """Set each queue's event source mapping's MaximumConcurrency again, as a number.

        CloudFormation passes a Number parameter on as text. AWS converts it to a number, MiniStack 1.5.33
        does not, and one mapping with a text stops its poller for all of them.
        """
        functions = self._client("lambda")
        for page in functions.get_paginator("list_event_source_mappings").paginate():
            for mapping in page["EventSourceMappings"]:
                if limit := mapping.get("ScalingConfig", {}).get("MaximumConcurrency"):
                    functions.update_event_source_mapping(
                        UUID=mapping["UUID"], ScalingConfig={"MaximumConcurrency": int(limit)}
                    )

    def unpack_layer(self, arn: str, folder: Path) -> Path:
        """Unpack a deployed layer version below `folder`, once for each content; returns its path."""
        content = self._client("lambda").get_layer_version_by_arn(Arn=arn)["Content"]
        unpacked = folder / base64.b64decode(content["CodeSha256"]).hex()
        if not unpacked.exists():
            # The emulator returns a URL with its own host name and scheme.
            with urllib.request.urlopen(content["Location"], timeout=_FETCH_S) as answer:  # noqa: S310
                packed = io.BytesIO(answer.read())
            draft = unpacked.with_suffix(".part")
            with zipfile.ZipFile(packed) as archive:
                archive.extractall(draft)
            draft.rename(unpacked)
        return unpacked

    def _client(self, service: str) -> Any:
        from botocore.config import Config

        # One call may wait for a function's cold start and its whole work.
        config = Config(read_timeout=300, retries={"max_attempts": 0})
        return self._session.client(service, endpoint_url=self.endpoint, config=config)  # type: ignore[call-overload]

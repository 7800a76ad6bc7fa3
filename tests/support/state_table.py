"""Tables like the template's StateTable."""

from __future__ import annotations

import uuid
from typing import Any

import boto3
import pytest
from botocore.config import Config

from indexmill.platform.aws.clients import CallLimits, DirectClient
from local.backends.ministack import MiniStack
from tests.support.ministack import REGION

KEYS = {"region_name": REGION, "aws_access_key_id": "test", "aws_secret_access_key": "test"}


def dynamodb(server: MiniStack) -> Any:
    """Return a client of the running endpoint."""
    return client_at(server.endpoint)


def client_at(endpoint: str) -> Any:
    """Return a client of the endpoint at this address."""
    make: Any = boto3.client
    return make("dynamodb", endpoint_url=endpoint, **KEYS)


def direct(endpoint: str, patch: pytest.MonkeyPatch) -> Any:
    """Return a client of the endpoint as processes have it, with the region and the keys of variables."""
    for name, value in KEYS.items():
        patch.setenv(name.replace("region_name", "aws_default_region").upper(), value)
    return DirectClient("dynamodb", CallLimits(1.0, 5.0, 1), endpoint)


def unavailable() -> Any:
    """Return a client of an endpoint that is not there."""
    make: Any = boto3.client
    config = Config(retries={"max_attempts": 1}, connect_timeout=1)
    return make("dynamodb", endpoint_url="http://127.0.0.1:1", config=config, **KEYS)


def new_table(client: Any) -> str:
    """Make an empty table and return its name."""
    name = f"state-{uuid.uuid4().hex[:8]}"
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return name

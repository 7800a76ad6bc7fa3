"""Factory of boto3 clients: cached per process, with common timeouts and retries."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import boto3
from botocore.config import Config

from indexmill.platform.meter import METER

_CONFIG = Config(
    connect_timeout=2,
    read_timeout=10,
    retries={"mode": "standard", "max_attempts": 3},
    max_pool_connections=16,
    # Without a name, botocore composes one from its environment twice per call: a tenth of the call's CPU.
    user_agent="indexmill",
    # Checksums beyond Content-MD5 cost CPU and add nothing on a TLS connection to content-addressed objects.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
    # Ids and numbers are made by us: boto3's own look at every parameter costs more than the call's JSON.
    parameter_validation=False,
)

_QUICK = _CONFIG.merge(Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1}))
# Otherwise botocore signs for the endpoint of all regions, which redirects: a browser's PUT fails at that.
_SIGNING = Config(signature_version="s3v4", s3={"addressing_style": "virtual"})
_MAKING = threading.Lock()


@dataclass(frozen=True, slots=True)
class DirectTimes:
    """Limits of a direct client, in seconds."""

    connect_s: float
    answer_s: float


_BATCHES = {"BatchGetItem": "dynamodb_reads", "BatchWriteItem": "dynamodb_writes"}
"""Requests of several items: what counts their items."""


def client(
    service: str,
    *,
    read_timeout_s: float | None = None,
    quick: bool = False,
    direct: DirectTimes | None = None,
    signs_urls: bool = False,
) -> Any:
    """Return the process's client for `service`; safe in any thread.

    Endpoints come from AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_<SERVICE>. A `quick` client times out after 1 s
    and does not retry: for calls that are optional. A `direct` one is of DynamoDB, for calls that are part of
    every caller's request: `platform/aws/direct.py` sends them, without retries. One that `signs_urls` is of
    S3, for URLs that others use.
    """
    # boto3.client is not safe in threads; the clients that it makes are.
    with _MAKING:
        return _made(service, read_timeout_s, quick, direct, signs_urls)


class LazyClient:
    """`client(...)`, made on its first call: a function does not pay for clients that it never uses."""

    def __init__(
        self,
        service: str,
        *,
        read_timeout_s: float | None = None,
        quick: bool = False,
        direct: DirectTimes | None = None,
        signs_urls: bool = False,
    ) -> None:
        """Make nothing yet."""
        self._make = partial(
            client,
            service,
            read_timeout_s=read_timeout_s,
            quick=quick,
            direct=direct,
            signs_urls=signs_urls,
        )

    def __getattr__(self, operation: str) -> Any:
        """Return the client's method, found directly from then on."""
        method = getattr(self._make(), operation)
        setattr(self, operation, method)
        return method


@cache
def _made(
    service: str, read_timeout_s: float | None, quick: bool, direct: DirectTimes | None, signs_urls: bool
) -> Any:
    config = _QUICK if quick else _CONFIG
    if signs_urls:
        config = config.merge(_SIGNING)
    if read_timeout_s is not None:
        config = config.merge(Config(read_timeout=read_timeout_s))
    make: Any = boto3.client
    made = make(service, config=config)
    if direct is not None:
        from indexmill.platform.aws.direct import DirectRequests

        made.meta.events.register(
            "before-call.dynamodb", DirectRequests(direct.connect_s, direct.answer_s).send
        )
    # For each HTTP request, those of retries included.
    made.meta.events.register("before-send", _count)
    for operation, field in _BATCHES.items():
        if service == "dynamodb":
            made.meta.events.register(f"before-parameter-build.dynamodb.{operation}", partial(_items, field))
    return made


def _count(event_name: str, **_: Any) -> None:
    """Count a request; botocore's event is named `before-send.<service>.<operation>`."""
    service, operation = event_name.split(".")[1:]
    METER.request(service, operation)


def _items(field: str, params: dict[str, Any], **_: Any) -> None:
    """Count the items of a batch beside the first one, which its request counts."""
    found = params["RequestItems"].values()
    items = sum(len(each["Keys"] if isinstance(each, dict) else each) for each in found)
    METER.add({field: items - 1})

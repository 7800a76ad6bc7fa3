"""One place that makes boto3 clients, so that all of them share time-outs and retries."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

_CONFIG = Config(
    connect_timeout=2,
    read_timeout=10,
    retries={"mode": "standard", "max_attempts": 3},
    max_pool_connections=16,
    # Checksums beyond Content-MD5 cost CPU and add nothing on a TLS connection to content-addressed objects.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
    # Ids and numbers are made by us: boto3's own look at every parameter costs more than the call's JSON.
    parameter_validation=False,
)

_QUICK = _CONFIG.merge(Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1}))


def client(service: str, *, read_timeout_s: float | None = None, quick: bool = False) -> Any:
    """Return a boto3 client; endpoints come from AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_<SERVICE>.

    A `quick` one tries once and for a second: for what can be done without.
    """
    config = _QUICK if quick else _CONFIG
    if read_timeout_s is not None:
        config = config.merge(Config(read_timeout=read_timeout_s))
    make: Any = boto3.client
    return make(service, config=config)

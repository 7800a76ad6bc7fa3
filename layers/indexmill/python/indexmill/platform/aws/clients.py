"""Factory of boto3 clients: cached per process, with common timeouts and retries."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import select
import ssl
import threading
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache, partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from botocore.httpsession import DEFAULT_CA_BUNDLE

from indexmill.platform.meter import METER
from indexmill.platform.time import SystemClock

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
_SIGNATURE: Final = "AWS4-HMAC-SHA256"


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
    every caller's request: DirectRequests sends them, without retries. One that `signs_urls` is of S3, for
    URLs that others use.
    """
    # boto3.client is not safe in threads; the clients that it makes are.
    with _MAKING:
        return _made(service, read_timeout_s, quick, direct, signs_urls)


class LazyClient:
    """`client(...)`, made on its first call: a function does not pay for clients that it never uses."""

    def __init__(self, service: str, **options: Any) -> None:
        """Make nothing yet."""
        self._make = partial(client, service, **options)

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


@dataclass(frozen=True, slots=True)
class _Answer:
    """All that botocore wants to know of the HTTP response."""

    status_code: int


class _UnreadableError(ValueError):
    """The answer is not a JSON object."""


class DirectRequests:
    """Sends the requests of one DynamoDB client, signed by ourselves, with a quarter of botocore's CPU.

    Names, parameters, errors and everything before the request stay botocore's: its event `before-call` may
    be answered with the response. There are no retries, and an answer is JSON as DynamoDB sends it. Each
    thread has a connection.
    """

    def __init__(self, connect_timeout_s: float, read_timeout_s: float) -> None:
        """No connection is made before the first request."""
        self._connect_s = connect_timeout_s
        self._read_s = read_timeout_s
        self._local = threading.local()

    def send(
        self, event_name: str, params: dict[str, Any], request_signer: Any, **_: Any
    ) -> tuple[_Answer, dict[str, Any]]:
        """Answer botocore's event `before-call`. Raises EndpointConnectionError, NoCredentialsError."""
        METER.request("dynamodb", event_name.rpartition(".")[2])
        credentials = request_signer._credentials  # the client's, which are refreshed
        if credentials is None:
            raise NoCredentialsError
        found = credentials.get_frozen_credentials()
        url = urlsplit(params["url"])
        body = params["body"]
        headers = sign(
            body,
            {"host": url.netloc, "x-amz-target": params["headers"]["X-Amz-Target"]},
            keys=(found.access_key, found.secret_key, found.token),
            region=request_signer.region_name,
            at=SystemClock().now(),
        )
        headers["Content-Type"] = params["headers"]["Content-Type"]
        try:
            status, answered, content = self._exchange(url.scheme, url.netloc, body, headers)
            parsed = json.loads(content)
            if not isinstance(parsed, dict):
                raise _UnreadableError
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            raise EndpointConnectionError(endpoint_url=params["url"], error=error) from error
        if "__type" in parsed:
            code = str(parsed["__type"]).rpartition("#")[2]
            message = parsed.get("message") or parsed.get("Message") or ""
            parsed["Error"] = {"Code": code, "Message": message}
        parsed["ResponseMetadata"] = {"HTTPStatusCode": status, "HTTPHeaders": answered}
        return _Answer(status), parsed

    def _exchange(
        self, scheme: str, host: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        connection = self._connection(scheme, host)
        connection.request("POST", "/", body, headers)
        response = connection.getresponse()
        content = response.read()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, content

    def _connection(self, scheme: str, host: str) -> HTTPConnection:
        """Return the open connection, or a new one when the other side has closed it meanwhile."""
        connection: HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is not None and connection.sock is not None:
            if not select.select([connection.sock], [], [], 0)[0]:
                return connection
            self.close()
        if scheme == "https":
            connection = HTTPSConnection(host, timeout=self._connect_s, context=_tls())
        else:
            connection = HTTPConnection(host, timeout=self._connect_s)
        connection.connect()
        connection.sock.settimeout(self._read_s)
        self._local.connection = connection
        return connection

    def close(self) -> None:
        """Close the thread's connection."""
        connection: HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None


def sign(
    body: bytes, headers: dict[str, str], *, keys: tuple[str, str, str | None], region: str, at: datetime
) -> dict[str, str]:
    """Return the headers of a DynamoDB request with AWS's signature, version 4.

    `headers` have lower-case names; `keys` are access key, secret key and session token.
    """
    access_key, secret_key, token = keys
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    signed = {**headers, "x-amz-date": stamp}
    if token:
        signed["x-amz-security-token"] = token
    names = sorted(signed)
    canonical = [
        "POST",
        "/",
        "",
        *(f"{name}:{signed[name]}" for name in names),
        "",
        ";".join(names),
        hashlib.sha256(body).hexdigest(),
    ]
    scope = f"{stamp[:8]}/{region}/dynamodb/aws4_request"
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    text = f"{_SIGNATURE}\n{stamp}\n{scope}\n{digest}"
    signature = hmac.new(_key(secret_key, stamp[:8], region), text.encode(), hashlib.sha256).hexdigest()
    parts = (f"Credential={access_key}/{scope}", f"SignedHeaders={';'.join(names)}", f"Signature={signature}")
    signed["Authorization"] = f"{_SIGNATURE} {', '.join(parts)}"
    return signed


@lru_cache(maxsize=4)
def _key(secret_key: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, "dynamodb", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or DEFAULT_CA_BUNDLE)

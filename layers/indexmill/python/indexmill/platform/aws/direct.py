"""Requests of a DynamoDB client that are signed and sent by ourselves, with a quarter of the CPU.

Names, parameters, errors and everything before the request stay botocore's: its event `before-call` may be
answered with the response. There are no retries, and an answer is JSON as DynamoDB sends it.
"""

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
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from botocore.httpsession import DEFAULT_CA_BUNDLE

from indexmill.platform.meter import METER
from indexmill.platform.time import SystemClock

_ALGORITHM: Final = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class _Answer:
    """All that botocore wants to know of the HTTP response."""

    status_code: int


class _UnreadableError(ValueError):
    """The answer is not a JSON object."""


class DirectRequests:
    """Sends the requests of one client, on a connection for each thread."""

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
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}"
    signature = hmac.new(_key(secret_key, stamp[:8], region), text.encode(), hashlib.sha256).hexdigest()
    parts = (f"Credential={access_key}/{scope}", f"SignedHeaders={';'.join(names)}", f"Signature={signature}")
    signed["Authorization"] = f"{_ALGORITHM} {', '.join(parts)}"
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

"""Clients of AWS, cached per process: what each job needs is sent past boto3, everything else by it."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import select
import socket
import ssl
import threading
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache, partial
from http.client import HTTPException, HTTPResponse
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit

from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from indexmill.platform.meter import METER
from indexmill.platform.time import SystemClock


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of a client's calls: seconds for a connection and for an answer, and how often it tries."""

    connect_s: float = 2.0
    answer_s: float = 10.0
    tries: int = 4


QUICK: Final = CallLimits(1.0, 1.0, 1)
"""For calls that are optional."""
_TARGETS: Final = {"dynamodb": "DynamoDB_20120810", "sqs": "AmazonSQS"}
"""Services whose requests are JSON, with the name that each operation's begins with."""
_OBJECTS: Final = {"PutObject": "PUT", "GetObject": "GET", "HeadObject": "HEAD", "DeleteObject": "DELETE"}
"""Operations of S3; a head has its status alone."""
_BATCHES: Final = {"BatchGetItem": "dynamodb_reads", "BatchWriteItem": "dynamodb_writes"}
"""Requests of several items: what counts their items."""
_PAUSE_S: Final = 0.05
RETRIED: Final[dict[str | int, float]] = {
    **dict.fromkeys((500, 502, 503, 504, "RequestTimeout", "RequestTimeoutException"), _PAUSE_S),
    **dict.fromkeys((429, "ProvisionedThroughputExceededException", "RequestLimitExceeded"), 1.0),
    **dict.fromkeys(("RequestThrottled", "SlowDown", "ThrottlingException"), 1.0),
}
"""Errors that are tried again as in botocore's standard mode, with the longest first pause in seconds."""
_JOINED_BYTES: Final = 65_536
_SUCCESS: Final = range(200, 300)
_SIGNATURE: Final = "AWS4-HMAC-SHA256"
_SAID: Final = re.compile("<(Code|Message)>([^<]*)<")
_MAKING: Final = threading.Lock()
_Request: TypeAlias = tuple[str, str, str, bytes, dict[str, str]]
"""Method, host, path, content and headers."""


def client(service: str, *, limits: CallLimits | None = None, signs_urls: bool = False) -> Any:
    """Return the process's client for `service`; safe in any thread.

    Endpoints come from AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_<SERVICE>. Those of SQS, DynamoDB and S3 are
    DirectClients; one that `signs_urls` is of S3, for URLs that others use, and boto3's as all others are.
    """
    # boto3.client is not safe in threads; the clients that it makes are.
    with _MAKING:
        return _made(service, limits or CallLimits(), signs_urls)


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
def _made(service: str, limits: CallLimits, signs_urls: bool) -> Any:
    if not signs_urls and (service == "s3" or service in _TARGETS):
        return DirectClient(service, limits)
    # Most processes never need it.
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=limits.connect_s,
        read_timeout=limits.answer_s,
        retries={"mode": "standard", "total_max_attempts": limits.tries},
        # Without a name, botocore composes one from its environment twice per call.
        user_agent="indexmill",
        # A URL to write to is signed with the checksum that it was asked for, and no other one.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # Ids and numbers are made by us: boto3's own look at every parameter costs more than the call's JSON.
        parameter_validation=False,
    )
    if signs_urls:
        # Otherwise botocore signs for the endpoint of all regions, which redirects: a browser's PUT fails.
        config = config.merge(Config(signature_version="s3v4", s3={"addressing_style": "virtual"}))
    made: Any = boto3.client(service, config=config)  # type: ignore[call-overload]
    # For each HTTP request, those of retries included.
    made.meta.events.register("before-send", _count)
    return made


def _count(event_name: str, **_: Any) -> None:
    """Count a request; botocore's event is named `before-send.<service>.<operation>`."""
    service, operation = event_name.split(".")[1:]
    METER.request(service, operation)


class DirectClient:
    """SQS, DynamoDB, or S3's objects, with a quarter of the CPU of boto3's client and none of its memory.

    Operations, parameters, answers and errors are named as there, and the same failures are tried again.
    Connections are kept; threads do not share one at the same time.
    """

    def __init__(self, service: str, limits: CallLimits, endpoint: str = "") -> None:
        """Region and credentials are found as by boto3; nothing is opened. Raises NoRegionError."""
        self.service, self._limits = service, limits
        # A function has both in its variables; a session of botocore takes 5 MB.
        self._region = os.environ.get("AWS_DEFAULT_REGION") or _session().get_config_variable("region")
        if not self._region:
            raise NoRegionError
        variables = (f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL")
        self._given = endpoint or next(filter(None, map(os.environ.get, variables)), None)
        suffix = "amazonaws.com.cn" if self._region.startswith("cn-") else "amazonaws.com"
        self._url = self._given or f"https://{service}.{self._region}.{suffix}"
        self._host = urlsplit(self._url).netloc
        self._idle: defaultdict[str, list[socket.socket]] = defaultdict(list)

    def __getattr__(self, operation: str) -> Any:
        """Return the method of an operation by boto3's name for it, found directly from then on."""
        name = "".join(map(str.title, operation.split("_")))
        if operation.startswith("_") or (self.service == "s3" and name not in _OBJECTS):
            raise AttributeError(operation)

        def call(**parameters: Any) -> dict[str, Any]:
            return self._make_api_call(name, parameters)

        setattr(self, operation, call)
        return call

    def close(self) -> None:
        """Close the connections; the next call opens one."""
        for each in self._idle.values():
            while each:
                each.pop().close()

    def _make_api_call(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the answer. Raises ClientError and BotoCoreError."""
        if operation in _BATCHES:
            found = parameters["RequestItems"].values()
            items = sum(len(each["Keys"] if isinstance(each, dict) else each) for each in found)
            # Its request counts one.
            METER.add({_BATCHES[operation]: items - 1})
        asked = self._asked(operation, parameters)
        for tried in range(1, self._limits.tries + 1):
            METER.request(self.service, operation)
            error: Exception
            try:
                answer: Any = self._answer(asked, is_object=operation == "GetObject")
                if "Error" not in answer:
                    break
                error = ClientError(answer, operation)
            except TimeoutError as cause:
                error = ReadTimeoutError(endpoint_url=self._url, error=cause)
            except (OSError, HTTPException, ValueError) as cause:
                error = EndpointConnectionError(endpoint_url=self._url, error=cause)
            pause_s = _pause_s(error)
            if pause_s is None or tried == self._limits.tries:
                raise error
            SystemClock().pause(pause_s * 2 ** (tried - 1))
        return dict(answer)

    def _asked(self, operation: str, parameters: dict[str, Any]) -> _Request:
        if self.service in _TARGETS:
            text = json.dumps(parameters, default=_base64, ensure_ascii=False)
            target = f"{_TARGETS[self.service]}.{operation}"
            headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": target}
            return "POST", self._host, "/", text.encode("utf-8", "surrogatepass"), headers
        data, bucket, path = parameters.get("Body", b""), parameters["Bucket"], f"/{quote(parameters['Key'])}"
        headers = {"x-amz-content-sha256": hashlib.sha256(data).hexdigest()}
        if "ContentType" in parameters:
            headers["content-type"] = " ".join(parameters["ContentType"].split())
        # The certificate of the hosts of buckets does not hold for names with dots.
        if self._given or "." in bucket:
            return _OBJECTS[operation], self._host, f"/{bucket}{path}", data, headers
        return _OBJECTS[operation], f"{bucket}.{self._host}", path, data, headers

    def _answer(self, asked: _Request, *, is_object: bool) -> dict[str, Any]:
        """Send one request and return its answer, which may be an error; one with an object is not read."""
        method, host, path, data, headers = asked
        headers = {"host": host, **headers}
        scope, now = (self._region, self.service), SystemClock().now()
        headers = sign(method, path, headers, data, keys=_keys(), scope=scope, at=now)
        lines = (f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {path} HTTP/1.1\r\n{''.join(lines)}content-length: {len(data)}\r\n\r\n".encode()
        sock = self._socket(host)
        response = HTTPResponse(sock, method=method)
        try:
            # Small content goes with its head: a second part costs both sides.
            for part in (head + data,) if len(data) < _JOINED_BYTES else (head, data):
                sock.sendall(part)
            response.begin()
            said = {name.lower(): value for name, value in response.getheaders()}
            answer = {"ResponseMetadata": {"HTTPStatusCode": response.status, "HTTPHeaders": said}}
            end = sock.close if response.will_close else partial(self._idle[host].append, sock)
            if is_object and response.status in _SUCCESS:
                return {**answer, "Body": Content(response, sock, end), "ContentLength": response.length}
            answer |= _read(response.read(), response.status, is_json=self.service in _TARGETS)
        except BaseException:
            response.close()
            sock.close()
            raise
        end()
        return answer

    def _socket(self, host: str) -> socket.socket:
        """Return a connection that the other side has not closed meanwhile, or a new one."""
        idle = self._idle[host]
        while idle:
            try:
                kept = idle.pop()
            except IndexError:  # another thread took it
                break
            if not _is_readable(kept):
                return kept
            kept.close()
        where, is_safe = urlsplit(f"//{host}"), self._url.startswith("https:")
        address = (where.hostname or "", where.port or (443 if is_safe else 80))
        made = socket.create_connection(address, self._limits.connect_s)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if is_safe:
                made = _tls().wrap_socket(made, server_hostname=where.hostname)
            made.settimeout(self._limits.answer_s)
        except BaseException:
            made.close()
            raise
        return made


class Content:
    """Content of an object, to be read once or closed."""

    def __init__(self, response: HTTPResponse, sock: socket.socket, end: Callable[[], object]) -> None:
        """`end` is called when all was read."""
        self._response, self._socket, self._end = response, sock, end

    def read(self) -> bytes:
        """Return all of it. Raises ResponseStreamingError."""
        try:
            data = self._response.read()
        except (OSError, HTTPException) as error:
            self.close()
            raise ResponseStreamingError(error=error) from error
        self._end()
        return data

    def close(self) -> None:
        """Close the connection unless all was read."""
        if not self._response.isclosed():
            self._response.close()
            self._socket.close()


def _read(content: bytes, status: int, *, is_json: bool) -> dict[str, Any]:
    """Return the members of an answer, and `Error` where it is one. Raises ValueError for what is no JSON."""
    answer: dict[str, Any] = {}
    code, message = str(status), ""
    if is_json:
        answer = json.loads(content, object_hook=_bytes if b'"B"' in content else None)
        if not isinstance(answer, dict):
            raise ValueError("not an object")
        code = str(answer.get("__type", code)).rpartition("#")[2]
        message = answer.get("message") or answer.get("Message") or ""
    elif status not in _SUCCESS:
        said = dict(_SAID.findall(content.decode(errors="replace")))
        code, message = said.get("Code", code), said.get("Message", message)
    return answer if status in _SUCCESS else {**answer, "Error": {"Code": code, "Message": message}}


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _bytes(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value of DynamoDB; a binary one is base64 in JSON."""
    binary = value.get("B") if len(value) == 1 else None
    return {"B": b64decode(binary)} if isinstance(binary, str) else value


def _pause_s(error: Exception) -> float | None:
    """Return the longest pause before the second try, doubled for the next; None: an error that stays."""
    if not isinstance(error, ClientError):
        return _PAUSE_S
    found: Any = error.response
    return RETRIED.get(found["Error"]["Code"]) or RETRIED.get(found["ResponseMetadata"]["HTTPStatusCode"])


def _is_readable(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def sign(  # noqa: PLR0913 - what a signature is of
    method: str,
    path: str,
    headers: dict[str, str],
    content: bytes,
    *,
    keys: tuple[str, str, str | None],
    scope: tuple[str, str],
    at: datetime,
) -> dict[str, str]:
    """Return the headers of a request with AWS's signature, version 4.

    `headers` have lower-case names; `keys` are access key, secret key and session token; `scope` is region
    and service.
    """
    access_key, secret_key, token = keys
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    signed = {**headers, "x-amz-date": stamp}
    if token:
        signed["x-amz-security-token"] = token
    names = sorted(signed)
    canonical = [
        method,
        path,
        "",
        *(f"{name}:{signed[name]}" for name in names),
        "",
        ";".join(names),
        headers.get("x-amz-content-sha256") or hashlib.sha256(content).hexdigest(),
    ]
    region, service = scope
    whole = f"{stamp[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    text = f"{_SIGNATURE}\n{stamp}\n{whole}\n{digest}"
    signature = hmac.new(_key(secret_key, whole), text.encode(), hashlib.sha256).hexdigest()
    parts = (f"Credential={access_key}/{whole}", f"SignedHeaders={';'.join(names)}", f"Signature={signature}")
    signed["Authorization"] = f"{_SIGNATURE} {', '.join(parts)}"
    return signed


@lru_cache(maxsize=8)
def _key(secret_key: str, scope: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _keys() -> tuple[str, str, str | None]:
    """Return access key, secret key and session token. Raises NoCredentialsError."""
    key = os.environ.get("AWS_ACCESS_KEY_ID")
    if key:
        return key, os.environ.get("AWS_SECRET_ACCESS_KEY", ""), os.environ.get("AWS_SESSION_TOKEN")
    # It keeps them, and refreshes those that expire.
    credentials = _session().get_credentials()
    if credentials is None:
        raise NoCredentialsError
    found = credentials.get_frozen_credentials()
    return found.access_key, found.secret_key, found.token


@cache
def _session() -> Any:
    import botocore.session

    return botocore.session.Session()


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    from botocore.httpsession import DEFAULT_CA_BUNDLE

    return ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or DEFAULT_CA_BUNDLE)

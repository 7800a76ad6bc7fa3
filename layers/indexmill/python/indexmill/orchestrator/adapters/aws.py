"""AWS behind the Orchestrator's acts: other functions, their event source mappings, and uploads on S3."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.contracts.content import BlobRef, UploadRequest
from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError
from indexmill.contracts.http_scraper import ScrapeResult
from indexmill.contracts.identity import CallerContext, Doubt
from indexmill.orchestrator.submission.uploads import Uploaded
from indexmill.platform.aws.clients import CallLimits, LazyClient
from indexmill.platform.aws.state_table import StateTable, StoreUnavailable

_SCRAPE_PATH: Final = "/scraper/scrape"
_OK: Final = 200
_LONGEST_S: Final = 60.0
"""More than a gateway waits: a second try would fetch the page again."""
_ON: Final = ("Enabled", "Enabling", "Creating")
_OFF: Final = ("Disabled", "Disabling")
_NO_OBJECT: Final = ("NoSuchKey", "404")
_UNKNOWN: Final = "application/octet-stream"


class LambdaSwitch:
    """One event source mapping. It is looked at first: a change takes Lambda up to a minute."""

    def __init__(self, mapping_id: str, lambda_: Any | None = None) -> None:
        """The client is made on first use."""
        self._id = mapping_id
        self._lambda = lambda_ or LazyClient("lambda")

    def set(self, *, on: bool) -> bool:
        """Turn it on or off; return whether that changed anything. Raises TransientError."""
        try:
            state = self._lambda.get_event_source_mapping(UUID=self._id)["State"]
            if state in (_ON if on else _OFF):
                return False
            self._lambda.update_event_source_mapping(UUID=self._id, Enabled=on)
        except (BotoCoreError, ClientError) as error:
            raise TransientError(
                ErrorCode.QUEUE_UNAVAILABLE, "The event source mapping cannot be switched."
            ) from error
        return True


class LambdaIndexBuilder:
    """The function of sql/build_index.py."""

    def __init__(self, function: str, lambda_: Any | None = None) -> None:
        """`function` is its name or ARN; the client is made on first use."""
        self._function = function
        self._lambda = lambda_ or LazyClient("lambda")

    def start(self) -> None:
        """Queue an event for it. Raises TransientError."""
        try:
            self._lambda.invoke(FunctionName=self._function, InvocationType="Event", Payload=b"{}")
        except (BotoCoreError, ClientError) as error:
            raise TransientError(
                ErrorCode.QUEUE_UNAVAILABLE, "The index builder cannot be invoked."
            ) from error


class LambdaScraper:
    """scraper/api, asked as the gateway would ask it for the caller."""

    def __init__(self, function: str, lambda_: Any | None = None) -> None:
        """`function` is its name or ARN; the client is made on first use."""
        self._function = function
        self._lambda = lambda_ or LazyClient("lambda", limits=CallLimits(answer_s=_LONGEST_S))

    def scrape(
        self, ctx: CallerContext, url: str, request_id: str, accept: Sequence[Doubt] | None = None
    ) -> ScrapeResult:
        """Return the page. Raises IndexmillError with the code of the answer."""
        event = _scrape_event(ctx, {"url": url, **({"accept": list(accept)} if accept else {})}, request_id)
        try:
            answer = self._lambda.invoke(FunctionName=self._function, Payload=json.dumps(event).encode())
            reply = json.loads(answer["Payload"].read())
            body = json.loads(reply["body"])
            if reply["statusCode"] == _OK:
                return ScrapeResult.model_validate(body)
        except (BotoCoreError, ClientError, ValueError, KeyError) as error:
            raise TransientError(ErrorCode.UPSTREAM_ERROR, "The Scraper cannot be asked.") from error
        said = body.get("error", {})
        raise IndexmillError(said.get("code", ErrorCode.UPSTREAM_ERROR), said.get("message", ""))


def _scrape_event(ctx: CallerContext, body: Mapping[str, Any], request_id: str) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "X-Request-Id": request_id}
    authorizer = {
        "caller_id": ctx.caller_id,
        "caller_type": ctx.caller_type,
        "internal": str(ctx.internal).lower(),
    }
    authorizer |= {"tier": ctx.tier} if ctx.tier else {}
    if limits := ctx.raw_claims.get("rate_limits"):
        authorizer["rate_limits"] = json.dumps(limits)
    return {
        "resource": _SCRAPE_PATH,
        "path": _SCRAPE_PATH,
        "httpMethod": "POST",
        "headers": headers,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": None,
        "multiValueQueryStringParameters": None,
        "pathParameters": None,
        "requestContext": {
            "requestId": request_id,
            "path": _SCRAPE_PATH,
            "httpMethod": "POST",
            "authorizer": authorizer,
        },
        "body": json.dumps(body),
        "isBase64Encoded": False,
    }


class S3Objects:
    """Objects of one bucket that a deletion takes away. Calls raise TransientError(storage_unavailable)."""

    def __init__(self, bucket: str, s3: Any | None = None) -> None:
        """The client is made on first use."""
        self._bucket = bucket
        self._s3 = s3 or LazyClient("s3")

    def remove(self, key: str) -> int:
        """Delete the object; return whether it was there, as 0 or 1."""
        found = self.count(key)
        if found:
            try:
                self._s3.delete_object(Bucket=self._bucket, Key=key)
            except (BotoCoreError, ClientError) as error:
                raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "An object cannot be deleted.") from error
        return found

    def count(self, key: str) -> int:
        """Return whether it is there, as 0 or 1."""
        try:
            self._s3.head_object(Bucket=self._bucket, Key=key)
        except (BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and error.response.get("Error", {}).get("Code") in _NO_OBJECT:
                return 0
            raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "An object cannot be looked for.") from error
        return 1


class ProgressItems:
    """Items of the state table that a deletion takes away; raises TransientError(storage_unavailable)."""

    def __init__(self, table: StateTable) -> None:
        """`table` is the one of progress."""
        self._table = table

    def remove(self, key: str) -> int:
        """Delete the item; return whether it was there, as 0 or 1."""
        try:
            return int(self._table.delete(key))
        except StoreUnavailable as error:
            raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "An item cannot be deleted.") from error

    def count(self, key: str) -> int:
        """Return whether it is there, as 0 or 1."""
        try:
            return int(self._table.get(key, consistent=True, expired=True) is not None)
        except StoreUnavailable as error:
            raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "An item cannot be looked for.") from error


class S3Uploads:
    """Objects in one bucket."""

    def __init__(self, bucket: str, s3: Any | None = None) -> None:
        """The client is made on first use."""
        self._bucket = bucket
        self._s3 = s3 or LazyClient("s3", signs_urls=True)

    def grant(self, key: str, request: UploadRequest, valid_s: int) -> tuple[str, dict[str, str]]:
        """Sign a PUT; S3 refuses another size, digest or type. No request is sent."""
        content_type = request.content_type or _UNKNOWN
        checksum = b64encode(bytes.fromhex(request.sha256)).decode()
        url = self._s3.generate_presigned_url(
            "put_object",
            Params={
                "Bucket": self._bucket,
                "Key": key,
                "ContentLength": request.size,
                "ContentType": content_type,
                "ChecksumSHA256": checksum,
            },
            ExpiresIn=valid_s,
        )
        return url, {"content-type": content_type, "x-amz-checksum-sha256": checksum}

    def find(self, key: str) -> Uploaded | None:
        """Read the object's size, type and checksum."""
        try:
            found = self._s3.head_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _NO_OBJECT:
                return None
            raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "Uploads cannot be read.") from error
        except BotoCoreError as error:
            raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "Uploads cannot be read.") from error
        digest = b64decode(found["ChecksumSHA256"]).hex()
        return Uploaded(BlobRef(key=key, size=found["ContentLength"], sha256=digest), found["ContentType"])

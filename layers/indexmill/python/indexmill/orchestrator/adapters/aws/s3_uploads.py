"""Uploads on S3: presigned PUTs, whose signature covers size, digest and type."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.contracts.content import BlobRef, UploadRequest
from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.orchestrator.submission.uploads import Uploaded
from indexmill.platform.aws.clients import LazyClient

_UNKNOWN: Final = "application/octet-stream"


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
            if error.response.get("Error", {}).get("Code") in ("NoSuchKey", "404"):
                return None
            raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "Uploads cannot be read.") from error
        except BotoCoreError as error:
            raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "Uploads cannot be read.") from error
        digest = b64decode(found["ChecksumSHA256"]).hex()
        return Uploaded(BlobRef(key=key, size=found["ContentLength"], sha256=digest), found["ContentType"])

"""VectorCache on S3: one object per message, of its chunks' ids and their vectors."""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.embedding.ports import Space, Vector
from indexmill.platform.aws.clients import LazyClient

_LOG: Final = logging.getLogger(__name__)
_ID_BYTES: Final = 32


class S3VectorCache:
    """Objects below `progress/`, which the bucket deletes after days; ids are hex digests of 32 bytes."""

    def __init__(self, bucket: str, s3: Any | None = None) -> None:
        """The client is made on first use: most documents store no vectors."""
        self._bucket = bucket
        self._s3 = s3 or LazyClient("s3")

    def get(self, space: Space, message_id: str) -> dict[str, Vector]:
        """Return what was put; nothing when it is gone, damaged or out of reach."""
        try:
            answer = self._s3.get_object(Bucket=self._bucket, Key=_key(space, message_id))
            return _unpacked(answer["Body"].read(), space.dimension)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in ("NoSuchKey", "404"):
                _LOG.warning("kept vectors cannot be read", exc_info=True)
        except (BotoCoreError, ValueError):
            _LOG.warning("kept vectors cannot be read", exc_info=True)
        return {}

    def put(self, space: Space, message_id: str, vectors: Mapping[str, Vector]) -> None:
        """Write all vectors of the message."""
        data = b"".join(bytes.fromhex(key) + array("f", vector).tobytes() for key, vector in vectors.items())
        try:
            self._s3.put_object(Bucket=self._bucket, Key=_key(space, message_id), Body=data)
        except (BotoCoreError, ClientError):
            _LOG.warning("vectors cannot be kept", exc_info=True)


def _key(space: Space, message_id: str) -> str:
    name = f"{space.model}\0{space.dimension}\0{message_id}"
    return f"progress/{hashlib.sha256(name.encode()).hexdigest()}"


def _unpacked(data: bytes, dimension: int) -> dict[str, Vector]:
    size = _ID_BYTES + 4 * dimension
    if len(data) % size:
        raise ValueError("cut off")
    found: dict[str, Vector] = {}
    for start in range(0, len(data), size):
        vector = array("f")
        vector.frombytes(data[start + _ID_BYTES : start + size])
        found[data[start : start + _ID_BYTES].hex()] = vector
    return found

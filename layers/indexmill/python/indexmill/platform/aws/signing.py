"""Signatures that anyone can verify offline: DSSE envelopes, signed by a key that stays in KMS."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Final

from indexmill.contracts.errors import ErrorCode, TransientError

_ALGORITHM: Final = "ECDSA_SHA_256"


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return what an envelope's signature is of: the pre-authentication encoding of type and payload."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


class Signer:
    """Signs with one key of KMS (ECDSA on P-256). A digest leaves the process, never the payload."""

    def __init__(self, key_id: str, kms: Any | None = None) -> None:
        """`key_id` is the key's id or ARN; the client is made on first use when it is missing."""
        self._key = key_id
        self._kms = kms
        self._keyid = ""

    def sign(self, payload_type: str, payload: bytes) -> dict[str, Any]:
        """Return the envelope; `keyid` is the SHA-256 of the public key as DER.

        Raises TransientError(signing_unavailable).
        """
        # Here, so that verifying does not load it.
        from botocore.exceptions import BotoCoreError, ClientError

        from indexmill.platform.aws.clients import CallLimits, client

        digest = hashlib.sha256(pae(payload_type, payload)).digest()
        try:
            kms = self._kms = self._kms or client("kms", limits=CallLimits(answer_s=5.0))
            if not self._keyid:
                public = kms.get_public_key(KeyId=self._key)["PublicKey"]
                self._keyid = hashlib.sha256(public).hexdigest()
            signed = kms.sign(
                KeyId=self._key, Message=digest, MessageType="DIGEST", SigningAlgorithm=_ALGORITHM
            )
        except (BotoCoreError, ClientError) as error:
            raise TransientError(ErrorCode.SIGNING_UNAVAILABLE, "Nothing can be signed right now.") from error
        return {
            "payloadType": payload_type,
            "payload": base64.b64encode(payload).decode(),
            "signatures": [{"keyid": self._keyid, "sig": base64.b64encode(signed["Signature"]).decode()}],
        }

"""Signatures of KMS, verified offline by the command and by another reader of DSSE."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey
from typer.testing import CliRunner

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.platform.aws.signing import Signer, pae
from local.backends.ministack import MiniStack
from local.backends.ministack_resources import session
from local.cli.audit import audit
from local.cli.terminal import Failure
from tests.support.ministack import REGION

pytestmark = pytest.mark.integration

KIND = "application/vnd.indexmill.test+json"
PAYLOAD = '{"said": "Grüße, 0 rows"}'.encode()


class Signed:
    """A document that KMS signed, and its key's public half."""

    def __init__(self, ministack: MiniStack, folder: Path) -> None:
        self.kms: Any = session(REGION).client("kms", endpoint_url=ministack.endpoint)
        made = self.kms.create_key(KeySpec="ECC_NIST_P256", KeyUsage="SIGN_VERIFY")
        self.key_id = str(made["KeyMetadata"]["KeyId"])
        self.envelope = Signer(self.key_id, self.kms).sign(KIND, PAYLOAD)
        der = self.kms.get_public_key(KeyId=self.key_id)["PublicKey"]
        self.pem = pem_of(load_der_public_key(der))
        self.file, self.key = folder / "signed.json", folder / "key.pem"
        self.file.write_text(json.dumps(self.envelope))
        self.key.write_bytes(self.pem)


def pem_of(key: Any) -> bytes:
    pem: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


@pytest.fixture
def signed(ministack: MiniStack, tmp_path: Path) -> Signed:
    return Signed(ministack, tmp_path)


def verify(signed: Signed, *more: str) -> str:
    """Return what the command prints; raises Failure as it does."""
    shown = CliRunner().invoke(audit, ["verify", str(signed.file), "--key", str(signed.key), *more])
    if isinstance(shown.exception, Failure):
        raise shown.exception
    assert shown.exit_code == 0, shown.output
    return shown.stdout


def test_the_command_shows_what_was_signed(signed: Signed) -> None:
    assert "The signature is valid" in verify(signed)
    assert json.loads(verify(signed, "--json")) == json.loads(PAYLOAD)


def test_another_reader_of_dsse_agrees(signed: Signed) -> None:
    keyid = signed.envelope["signatures"][0]["keyid"]
    key = SSlibKey(keyid, "ecdsa", "ecdsa-sha2-nistp256", {"public": signed.pem.decode()})
    found = Envelope.from_dict(json.loads(json.dumps(signed.envelope)))
    assert found.pae() == pae(KIND, PAYLOAD)
    assert list(found.verify([key], 1)) == [keyid]
    found.payload += b" "
    with pytest.raises(VerificationError):
        found.verify([key], 1)


@pytest.mark.parametrize("part", ["payload", "payloadType", "sig"])
def test_a_change_of_any_part_is_noticed(signed: Signed, part: str) -> None:
    other = Signer(signed.key_id, signed.kms).sign(KIND, b"{}")
    if part == "sig":
        signed.envelope["signatures"] = other["signatures"]
    elif part == "payload":
        signed.envelope["payload"] = base64.b64encode(PAYLOAD.replace(b"0", b"9")).decode()
    else:
        signed.envelope["payloadType"] = KIND + "2"
    signed.file.write_text(json.dumps(signed.envelope))
    with pytest.raises(Failure, match="was changed") as failed:
        verify(signed)
    assert failed.value.exit_code == 1


def test_another_key_verifies_nothing(signed: Signed) -> None:
    signed.key.write_bytes(pem_of(ec.generate_private_key(ec.SECP256R1()).public_key()))
    with pytest.raises(Failure, match="is not that of the key"):
        verify(signed)


@pytest.mark.parametrize(
    ("file", "key", "told"),
    [
        (b"{}", None, "no DSSE envelope"),
        (b"\xff", None, "no DSSE envelope"),
        (b'{"payloadType": 1, "payload": "", "signatures": []}', None, "no DSSE envelope"),
        (None, b"no key", "no public key"),
        (None, pem_of(ec.generate_private_key(ec.SECP384R1()).public_key()), "P-256"),
    ],
)
def test_what_is_no_signed_document_or_no_key_is_wrong_usage(
    signed: Signed, file: bytes | None, key: bytes | None, told: str
) -> None:
    if file is not None:
        signed.file.write_bytes(file)
    if key is not None:
        signed.key.write_bytes(key)
    with pytest.raises(Failure, match=told) as failed:
        verify(signed)
    assert failed.value.exit_code == 2


def test_without_its_key_nothing_is_signed(signed: Signed) -> None:
    with pytest.raises(TransientError) as failed:
        Signer("11111111-1111-1111-1111-111111111111", signed.kms).sign(KIND, PAYLOAD)
    assert failed.value.code == ErrorCode.SIGNING_UNAVAILABLE

"""`indexmill audit`: signed documents, as reports of deletions, and the key that they are signed with."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_FAILED,
    EXIT_USAGE,
    Failure,
    JsonOption,
    StateOption,
    console,
    print_json,
    running_stack,
)

audit = typer.Typer(
    help="""Verify what the service signed, without it: no network, no account.

Examples:

  indexmill audit key > key.pem                     the running stack's public key

  indexmill audit verify report.json --key key.pem
""",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@audit.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The signed document, a DSSE envelope.")],
    key: Annotated[Path, typer.Option("--key", metavar="KEY", help="Public key in PEM (ECDSA, P-256).")],
    as_json: JsonOption = False,
) -> None:
    """Check a signed document against a public key, offline, and print what was signed.

    On AWS: aws kms get-public-key --key-id KEY --output text --query PublicKey | base64 -d |
    openssl pkey -pubin -inform DER > key.pem

    Example:

      indexmill audit verify report.json --key key.pem
    """
    try:
        payload = verified(_read(file), _read(key))
    except ValueError as error:
        raise Failure(f"{file}: {error}", EXIT_USAGE) from error
    except InvalidSignature as error:
        raise Failure(f"{file}: {error}", EXIT_FAILED) from error
    if as_json:
        print_json(json.loads(payload))
        return
    console().print("The signature is valid. What was signed:")
    console().print(json.dumps(json.loads(payload), indent=2, ensure_ascii=False), soft_wrap=True)


@audit.command("key")
def public_key(state: StateOption = DEFAULT_STATE) -> None:
    """Print the public key of the running stack, in PEM.

    Example:

      indexmill audit key > key.pem
    """
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

    from local.backends.ministack_resources import session

    info = running_stack(state)
    kms: Any = session(info["region"]).client("kms", endpoint_url=info["aws_endpoint"])
    der = kms.get_public_key(KeyId=info["resources"]["SigningKey"])["PublicKey"]
    pem = load_der_public_key(der).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    typer.echo(pem.decode(), nl=False)


class InvalidSignature(Exception):
    """No signature of the envelope is the key's over its type and payload."""


def verified(envelope: bytes, pem: bytes) -> bytes:
    """Return the payload of a DSSE envelope that the key in `pem` signed.

    Raises ValueError for what is no envelope or no such key, InvalidSignature.
    """
    from cryptography import exceptions
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

    from indexmill.platform.aws.signing import pae

    try:
        key = load_pem_public_key(pem)
    except (ValueError, exceptions.UnsupportedAlgorithm) as error:
        raise ValueError("the key is no public key in PEM") from error
    if not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)):
        raise ValueError("the key is not one for ECDSA on P-256")  # noqa: TRY004 - of a file, not of a type
    kind, payload, signatures = _parts(envelope)
    signed = pae(kind, payload)
    keyid = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
    for signature in signatures:
        try:
            key.verify(signature, signed, ec.ECDSA(SHA256()))
        except exceptions.InvalidSignature:
            continue
        return payload
    raise InvalidSignature(f"the signature is not that of the key {keyid}, or the content was changed")


def _parts(envelope: bytes) -> tuple[str, bytes, list[bytes]]:
    """Return type, payload and signatures. Raises ValueError."""
    try:
        found = json.loads(envelope)
        kind, payload = found["payloadType"], base64.b64decode(found["payload"], validate=True)
        kind.encode()
        signatures = [base64.b64decode(each["sig"], validate=True) for each in found["signatures"]]
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, RecursionError) as error:
        raise ValueError("this is no DSSE envelope") from error
    return kind, payload, signatures


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}", EXIT_USAGE) from error

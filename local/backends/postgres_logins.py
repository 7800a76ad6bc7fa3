"""Postgres logins: one for each service, in the group that the migrations made."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit, urlunsplit

_SECRETS: Final = {
    "OrchestratorDatabaseUrlSecretArn": "indexmill_orchestrator",
    "EmbeddingDatabaseUrlSecretArn": "indexmill_embedding",
}
"""Group by the template parameter that names the secret with the login's connection string."""
_SUFFIX: Final = "_app"
PASSWORD: Final = "for-a-server-that-asks-for-none"
"""Part of each connection string, so that a leaked one can be recognised."""


def secret_parameters(region: str, account_id: str) -> dict[str, str]:
    """Return template parameters: the ARN of each login's secret; none of the secrets is stored locally."""
    prefix = f"arn:aws:secretsmanager:{region}:{account_id}:secret:"
    return {name: prefix + group for name, group in _SECRETS.items()}


def login_url(owner_url: str, arn: str) -> str:
    """Return the connection string behind a secret's ARN; that of the owner for any other ARN."""
    group = arn.rpartition(":")[2]
    if group not in _SECRETS.values():
        return owner_url
    parts = urlsplit(owner_url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{group}{_SUFFIX}:{PASSWORD}@{host}"))


def create_logins(owner_url: str) -> None:
    """Create the login of each existing group. The server trusts local connections: no passwords."""
    from psycopg import connect, sql

    with connect(owner_url, autocommit=True) as connection:
        for group in _SECRETS.values():
            login = group + _SUFFIX
            known = {row[0] for row in connection.execute("SELECT rolname FROM pg_roles").fetchall()}
            if group not in known or login in known:
                continue
            statement = sql.SQL("CREATE ROLE {} LOGIN IN ROLE {}")
            connection.execute(statement.format(sql.Identifier(login), sql.Identifier(group)))

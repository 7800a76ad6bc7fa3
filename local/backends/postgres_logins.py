"""Who logs in to Postgres: each service by a login of its own, in the group that the migrations made."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit, urlunsplit

_SECRETS: Final = {
    "OrchestratorDatabaseUrlSecretArn": "indexmill_orchestrator",
    "EmbeddingDatabaseUrlSecretArn": "indexmill_embedding",
}
"""The group, by the template's parameter that names the secret with the login's connection string."""
_SUFFIX: Final = "_app"
PASSWORD: Final = "for-a-server-that-asks-for-none"
"""In each connection string, so that one that turns up where it should not be can be found."""


def secret_parameters(region: str, account_id: str) -> dict[str, str]:
    """Values of the template's parameters: the ARN of each login's secret, which nobody has to keep here."""
    prefix = f"arn:aws:secretsmanager:{region}:{account_id}:secret:"
    return {name: prefix + group for name, group in _SECRETS.items()}


def login_url(owner_url: str, arn: str) -> str:
    """The connection string behind a secret's ARN; that of the owner for an ARN that is not ours."""
    group = arn.rpartition(":")[2]
    if group not in _SECRETS.values():
        return owner_url
    parts = urlsplit(owner_url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{group}{_SUFFIX}:{PASSWORD}@{host}"))


def create_logins(owner_url: str) -> None:
    """Make the login of each group that is there. The server trusts its callers: they need no password."""
    from psycopg import connect, sql

    with connect(owner_url, autocommit=True) as connection:
        for group in _SECRETS.values():
            login = group + _SUFFIX
            known = {row[0] for row in connection.execute("SELECT rolname FROM pg_roles").fetchall()}
            if group not in known or login in known:
                continue
            statement = sql.SQL("CREATE ROLE {} LOGIN IN ROLE {}")
            connection.execute(statement.format(sql.Identifier(login), sql.Identifier(group)))

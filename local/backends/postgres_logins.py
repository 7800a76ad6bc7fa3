"""Postgres logins: one for each service and each kind of its functions, made as the Migrator makes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit, urlunsplit

_SECRETS: Final = {
    "OrchestratorDatabaseUrlSecretArn": ("ORCHESTRATOR_DATABASE", "indexmill_orchestrator_app"),
    "OrchestratorCallerDatabaseSecretArn": ("ORCHESTRATOR_CALLER_DATABASE", "indexmill_orchestrator_caller"),
    "EmbeddingDatabaseUrlSecretArn": ("EMBEDDING_DATABASE", "indexmill_embedding_app"),
    "EmbeddingCallerDatabaseSecretArn": ("EMBEDDING_CALLER_DATABASE", "indexmill_embedding_caller"),
}
"""The Migrator's kind and the login, by the template parameter that names the login's secret."""
_ENDING: Final = "-aBcDeF"
"""Secrets Manager's, of six characters."""
PASSWORD: Final = "for-a-server-that-asks-for-none"
"""Part of each connection string, so that a leaked one can be recognised."""


def secret_parameters(region: str, account_id: str) -> dict[str, str]:
    """Return template parameters: the ARN of each login's secret; none of the secrets is stored locally."""
    prefix = f"arn:aws:secretsmanager:{region}:{account_id}:secret:"
    return {name: prefix + login + _ENDING for name, (_, login) in _SECRETS.items()}


def login_url(owner_url: str, arn: str, proxy: str = "") -> str:
    """Return the connection string behind a secret's ARN; that of the owner for any other ARN.

    `proxy`, host and port, is what a login connects to in place of the server; the owner never does.
    """
    login = arn.rpartition(":")[2].removesuffix(_ENDING)
    if login not in {login for _, login in _SECRETS.values()}:
        return owner_url
    parts = urlsplit(owner_url)
    host = proxy or parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{login}:{PASSWORD}@{host}"))


def secret_texts(owner_url: str, arns: Iterable[str], proxy: str = "") -> dict[str, str]:
    """Return each secret's text, by the ARN that the template has for it or the variable that it is for."""
    urls = {arn: login_url(owner_url, arn, proxy) for arn in arns} | {"DATABASE_URL": owner_url}
    # A secret without sslmode is for a server with TLS.
    return {**{name: f"{url}?sslmode=disable" for name, url in urls.items()}, "EMBEDDING_API_KEY": "any"}


def login_urls(owner_url: str) -> dict[str, str]:
    """Return the connection string of each kind of login."""
    return {kind: login_url(owner_url, login) for kind, login in _SECRETS.values()}

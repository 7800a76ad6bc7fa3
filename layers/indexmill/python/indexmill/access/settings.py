"""Settings of the authorizers."""

from __future__ import annotations

from typing import ClassVar, Literal

from indexmill.platform.settings import FunctionSettings

AuthStyle = Literal["body", "header", "both"]
"""Where Membership reads the key: `{"api_key": …}` in the body, the header `X-API-Key`, or either."""


class AuthorizerSettings(FunctionSettings):
    """authorizer/app."""

    function: ClassVar[str] = "Authorizer"

    membership_url: str
    membership_auth_style: AuthStyle = "body"
    membership_breaker_seconds: float = 30.0
    state_table: str
    internal_key_hashes: str = ""
    """Comma-separated key hashes of the system's own callers."""
    orchestrator_key_hash: str = ""
    """One more of them, under its older name."""


class StreamAuthorizerSettings(AuthorizerSettings):
    """authorizer/stream."""

    function: ClassVar[str] = "StreamAuthorizer"

    stream_token_key: str | None = None
    previous_stream_token_key: str | None = None
    """Literal of the key before, whose tokens are still good; a secret has it in its previous version."""
    stream_token_key_secret_arn: str | None = None

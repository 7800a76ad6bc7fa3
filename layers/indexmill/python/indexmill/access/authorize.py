"""API Gateway's REQUEST authorizer: an Allow with the caller, or an exception; a Deny would be cached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from indexmill.access.ports import InvalidKey
from indexmill.contracts.identity import CallerContext, key_hash
from indexmill.platform.observability import Observability


class Unauthorized(Exception):
    """Its text is what API Gateway turns into a 401."""

    def __init__(self) -> None:
        """The exact word matters."""
        super().__init__("Unauthorized")


@dataclass(frozen=True, slots=True)
class Authorize:
    """The authorizer's use case."""

    validate: Callable[[str], CallerContext]
    observability: Observability

    def __call__(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the policy for the event's key.

        Raises Unauthorized (401); TransientError when Membership is away, which the gateway answers with 503.
        """
        key = _api_key(event)
        try:
            ctx = self.validate(key)
        except InvalidKey as error:
            self.observability.emit("auth_rejected", CallerContext(caller_id=key_hash(key)))
            raise Unauthorized from error
        finally:
            self.observability.flush()
        return {
            "principalId": ctx.caller_id,
            "policyDocument": _allow_all(str(event["methodArn"])),
            "context": {
                "caller_id": ctx.caller_id,
                "caller_type": ctx.caller_type,
                "tier": ctx.tier or "",
                "scopes": " ".join(ctx.scopes),
                "internal": "true" if ctx.internal else "false",
            },
        }


def _api_key(event: dict[str, Any]) -> str:
    headers = event.get("headers") or {}
    return next((str(value) for name, value in headers.items() if name.lower() == "x-api-key"), "")


def _allow_all(method_arn: str) -> dict[str, Any]:
    # The policy is cached for the key and used for its other methods too: it must cover all of them.
    api, _, rest = method_arn.partition("/")
    stage = rest.partition("/")[0]
    statement = {"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": f"{api}/{stage}/*/*"}
    return {"Version": "2012-10-17", "Statement": [statement]}

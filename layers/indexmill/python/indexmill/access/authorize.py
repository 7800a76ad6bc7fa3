"""REQUEST authorizers of API Gateway: return an Allow with the caller, or raise; a Deny would be cached."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from indexmill.access.identify import InvalidKey, UnexpectedStatus, UnreadableClaims
from indexmill.contracts.identity import FREE, CallerContext, key_hash, tier_of
from indexmill.platform.limits.policy import SERVICES, claimed, compact
from indexmill.platform.observability import Observability
from indexmill.platform.security.stream_tokens import Keys, verify
from indexmill.platform.time import Clock


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

    def __call__(self, event: dict[str, Any], _context: object = None) -> dict[str, Any]:
        """Return the policy for the event's key.

        Raises Unauthorized (401); TransientError while Membership is unavailable, which the gateway answers
        with 503.
        """
        key = api_key_of(event)
        try:
            ctx = self.validate(key)
            if ctx.tier and tier_of(ctx.tier) == FREE != ctx.tier.lower():
                self.observability.count("unknown_tier_total")
        except InvalidKey as error:
            request = (event.get("requestContext") or {}).get("requestId")
            self.observability.emit("auth_rejected", CallerContext(key_hash(key)), request_id=request)
            raise Unauthorized from error
        except UnexpectedStatus as error:
            self.observability.count("membership_unexpected_total", status=str(error.status))
            raise
        except UnreadableClaims as error:
            self.observability.count("membership_claims_invalid_total")
            where = {"claims": error.claims, "key_id": key_hash(key.strip())}
            # No traceback: it would hold the values.
            self.observability.log.error("membership.claims_invalid", extra=where)  # noqa: TRY400
            raise
        finally:
            self.observability.flush()
        return allowed(ctx, every_method(str(event["methodArn"])))


@dataclass(frozen=True, slots=True)
class AuthorizeStream:
    """Authorizer of a job's stream: a key as everywhere, or a token for this job; a key wins.

    The gateway caches none of its answers: a token in the URL and a key in a header cannot share a cache key.
    """

    by_key: Authorize
    clock: Clock
    keys: Keys
    """Read when the first token comes."""

    def __call__(self, event: dict[str, Any], _context: object = None) -> dict[str, Any]:
        """Return the policy for the event's key or token.

        Raises Unauthorized (401) for neither, and for a token that has expired, was changed, or is another
        job's; TransientError while Membership is unavailable.
        """
        if api_key_of(event):
            return self.by_key(event)
        token = (event.get("queryStringParameters") or {}).get("token")
        grant = verify(self.keys, str(token), self.clock.now()) if token else None
        if grant is None or grant.job_id != (event.get("pathParameters") or {}).get("job_id"):
            raise Unauthorized
        # The token tells no tier: its requests are counted apart from those with a key.
        ctx = CallerContext(grant.caller_id, scopes=("orchestrator:read",))
        return allowed(ctx, str(event["methodArn"]), token="true")


def allowed(ctx: CallerContext, resource: str, **passed_on: str) -> dict[str, Any]:
    """Return the gateway's answer that lets `ctx` call `resource`, an ARN; functions see `passed_on` too."""
    if limits := claimed(ctx.raw_claims.get("rate_limits")):
        passed_on["rate_limits"] = json.dumps(compact(limits), separators=(",", ":"))
    if ctx.scopes is not None:
        # Only what our functions know how to read. Missing means that nothing is restricted, so an empty list
        # has a text that is not empty, which nothing on the way could leave out.
        ours = [scope for scope in ctx.scopes if scope.partition(":")[0] in SERVICES]
        passed_on["granted_scopes"] = json.dumps(ours, separators=(",", ":"))
    statement = {"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": resource}
    return {
        "principalId": ctx.caller_id,
        "policyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        "context": {
            "caller_id": ctx.caller_id,
            "caller_type": ctx.caller_type,
            # Empty for none: a caller of whom Membership tells no tier has a fair share.
            "tier": tier_of(ctx.tier) if ctx.tier else "",
            "internal": "true" if ctx.internal else "false",
            **passed_on,
            "key_id": ctx.key_id,
            "alias": ctx.alias,
        },
    }


def api_key_of(event: dict[str, Any]) -> str:
    """Return the event's X-API-Key, "" for none."""
    headers = event.get("headers") or {}
    return next((str(value) for name, value in headers.items() if name.lower() == "x-api-key"), "")


def every_method(method_arn: str) -> str:
    """Return the ARN of all methods of the stage that `method_arn` is of."""
    # The policy is cached for the key and used for its other methods too: it must cover all of them.
    api, _, rest = method_arn.partition("/")
    return f"{api}/{rest.partition('/')[0]}/*/*"

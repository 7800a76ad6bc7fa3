"""REQUEST authorizer of a job's stream: a key as everywhere, or a token for this job.

The gateway caches none of its answers: a token in the URL and a key in a header could not share a cache key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from indexmill.access.authorize import Authorize, Unauthorized, allowed, api_key_of
from indexmill.contracts.identity import CallerContext
from indexmill.platform.security.stream_tokens import Keys, verify
from indexmill.platform.time import Clock


@dataclass(frozen=True, slots=True)
class AuthorizeStream:
    """The stream authorizer's use case. A key wins over a token."""

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
        return allowed(CallerContext(grant.caller_id), str(event["methodArn"]), token="true")

"""Stream tokens: let a browser follow one job for an hour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from indexmill.contracts.http_jobs import StreamToken
from indexmill.contracts.identity import CallerContext
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.platform.security.stream_tokens import StreamGrant, sign
from indexmill.platform.time.clock import Clock

_VALID_FOR: Final = timedelta(hours=1)
"""`EventSource` comes back to the same URL, so a token outlives all but very long jobs."""


@dataclass(frozen=True, slots=True)
class GrantStream:
    """Signs tokens for a caller's own jobs."""

    read: ReadJobs
    clock: Clock
    secret: Callable[[], str]
    """Fetched when the first token is signed."""

    def __call__(self, ctx: CallerContext, job_id: str, base_url: str) -> StreamToken:
        """Return a token for the job and the URL to use it at, below `base_url`.

        Raises CallerError(not_found) for an unknown job and for another caller's.
        """
        job = self.read.get(ctx, job_id)
        # Whole seconds, as in the token.
        expires_at = (self.clock.now() + _VALID_FOR).replace(microsecond=0)
        token = sign(self.secret(), StreamGrant(job.job_id, ctx.caller_id, expires_at))
        url = f"{base_url}/orchestrator/jobs/{job.job_id}/stream?token={token}"
        return StreamToken(token=token, expires_at=expires_at, url=url)

"""Asynchronous scraping of a URL without the Orchestrator: one message to the worker."""

from __future__ import annotations

from collections.abc import Callable

from indexmill.contracts.errors import CallerError, ErrorCode, TransientError
from indexmill.contracts.http_scraper import EnqueueResponse, ScrapeRequest
from indexmill.contracts.identity import CallerContext, new_id
from indexmill.contracts.messages import ScrapeTask, write
from indexmill.platform.aws.sqs_queue import Queue
from indexmill.platform.security.urls import AllowedHosts, canonical_url


class Enqueue:
    """Sends a ScrapeTask. Without a job no result is sent."""

    def __init__(
        self, queue: Queue, *, allowed_hosts: AllowedHosts = frozenset(), make_id: Callable[[], str] = new_id
    ) -> None:
        """`allowed_hosts` as in `canonical_url`."""
        self._queue = queue
        self._allowed = allowed_hosts
        self._make_id = make_id

    def __call__(
        self, caller: CallerContext, request: ScrapeRequest, request_id: str | None = None
    ) -> EnqueueResponse:
        """Queue the request.

        Raises CallerError (the URL's codes; forbidden for a job_id from outside) and
        TransientError(queue_unavailable).
        """
        refuse_foreign_job(request.job_id, internal=caller.internal)
        task = ScrapeTask(
            message_id=self._make_id(),
            job_id=request.job_id,
            request_id=request_id,
            url=canonical_url(request.url, allowed_hosts=self._allowed),
        )
        if self._queue.send([write(task)], [caller.caller_id]):
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The queue did not take the message.")
        return EnqueueResponse(job_id=request.job_id)


def refuse_foreign_job(job_id: str | None, *, internal: bool) -> None:
    """Raise CallerError(forbidden) for a job named from outside: it would get a result it never asked for."""
    if job_id is not None and not internal:
        raise CallerError(
            ErrorCode.FORBIDDEN,
            "job_id is for internal callers only.",
            field="body.job_id",
            hint="Leave job_id out, or submit the URL with POST /orchestrator/jobs.",
        )

"""REST endpoint of a job's event stream."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Response

from indexmill.orchestrator.queries.stream import StreamJob
from indexmill.platform.http.app import Caller
from indexmill.platform.http.guard import json_route, scoped

_TYPE: Final = "text/event-stream"
# A proxy that buffered or cached an answer would delay its events.
_HEADERS: Final = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The job, each time something happens to it.",
        "content": {_TYPE: {"schema": {"description": "Events with the job as JSON in `data`."}}},
    },
    204: {"description": "The job is over and its end was seen: do not ask again."},
}


class _EventStream(Response):
    """A response that OpenAPI does not describe as JSON."""

    media_type = _TYPE


def routes(follow: StreamJob) -> APIRouter:
    """Return the router over `follow`."""
    router = APIRouter(prefix="/orchestrator", route_class=json_route(0), tags=["orchestrator"])

    @router.get(
        "/jobs/{job_id}/stream",
        summary="One job, live",
        response_class=_EventStream,
        responses=_RESPONSES,
        openapi_extra=scoped("orchestrator:read", token=True),
    )
    async def stream_job(
        job_id: str,
        ctx: Caller,
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
        _token: Annotated[str | None, Query(alias="token", include_in_schema=False)] = None,
    ) -> Response:
        """Server-sent events, each the job as `GET` shows it; for `EventSource`.

        An answer ends at the first thing that happens, at the latest after 25 seconds; the client asks again
        with `Last-Event-ID`. A browser authorizes itself by `?token=`.
        """
        found = await follow(ctx, job_id, last_event_id)
        if found is None:
            return Response(status_code=204, headers=_HEADERS)
        return _EventStream(found, headers=_HEADERS)

    return router

"""Sound requests for every endpoint, and what a refusal looks like."""

from __future__ import annotations

from typing import Any, Final

import httpx

from indexmill.platform.http.app import SECURITY_HEADERS
from tests.support import openapi

URL: Final = "https://example.com/page"
COMPLETE: Final = "/orchestrator/jobs/{job_id}/complete"
JOB_ID: Final = "0b7a5b52-2f5b-4cf2-9f0c-2f6a3f1f3c11"
"""Of no job."""
MARK: Final = "zq7-marked-input"
"""Put it into a request: no answer may repeat it."""
Body = dict[str, Any]

BODIES: Final[dict[str, Body]] = {
    "/orchestrator/jobs": {"url": URL},
    "/orchestrator/uploads": {"size": 5, "sha256": "0" * 64},
    "/orchestrator/jobs/{job_id}/cancel": {"reason": "r"},
    "/orchestrator/batches/{batch_id}/cancel": {"reason": "r"},
    "/orchestrator/jobs/{job_id}/replay": {"source": "fetch"},
    "/orchestrator/jobs/retry": {"code": "no_such_code"},
    COMPLETE: {"stage": "scraping", "status": "failed"},
    "/scraper/scrape": {"url": URL},
    "/scraper/enqueue": {"url": URL},
    "/chunking/chunk": {"text": "words"},
    "/chunking/enqueue": {"text": "words"},
    "/embedding/embed": {"texts": ["words"]},
    "/embedding/enqueue": {"texts": ["words"], "url": URL},
    "/embedding/search": {"query": "words"},
    "/embedding/corpora/{name}/rename": {"new_name": "another-name"},
    "/embedding/corpora/{name}/verify": {"cursor": None},
    "/embedding/corpora/{name}/share": {"caller_id": "0" * 16},
    "/embedding/corpora/{name}/unshare": {"caller_id": "0" * 16},
}
"""A sound request for every endpoint with a body."""
UNKNOWN_OBJECTS: Final = {
    **dict.fromkeys(("job_id", "batch_id"), JOB_ID),
    **{"name": "no-such-corpus", "document_id": "0" * 64},
}
"""Parameters of paths: sound ones that name nothing."""
RIVALS: Final = {"urls": "url", "content": "url", "chunks": "texts", "query_embedding": "query"}
"""Of two such members a request has one."""
MAY_BE_EMPTY: Final = frozenset(
    ("/orchestrator/jobs/{job_id}/replay", "/orchestrator/jobs/retry", "/embedding/corpora/{name}/verify")
)
"""Nothing is required of their bodies."""
MAY_HAVE_NO_BODY: Final = frozenset(
    ("/orchestrator/jobs/{job_id}/replay", "/embedding/corpora/{name}/verify")
)


def post(caller: httpx.Client, path: str, **request: Any) -> httpx.Response:
    """Send to a path of the OpenAPI document; its job or batch is an unknown one."""
    return caller.post(path.format(**UNKNOWN_OBJECTS), **request)


def refused(answer: httpx.Response, status: int, code: str, path: str | None = None) -> None:
    """Check one refusal; `path` is the one in the OpenAPI document, when it promises this status."""
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), error["message"]
    assert answer.json().keys() == {"error"}
    assert error.keys() <= {"code", "message", "request_id", "field", "retry_after", "hint"}
    assert error["code"] in openapi.error_codes()
    assert error["message"]
    assert error["request_id"]
    assert answer.headers["Content-Type"].startswith("application/json")
    assert answer.headers["X-Request-Id"] == error["request_id"]
    assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
    assert MARK not in answer.text
    assert len(answer.content) < 1024
    if path is not None:
        assert openapi.problems(path, answer) == []

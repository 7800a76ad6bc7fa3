"""Every place of the OpenAPI document that names an object of a caller, with a request about it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx

from tests.support.hostile import Keys, fields, operations, with_value
from tests.support.refusals import BODIES
from tests.support.stack import RunningStack, index

OBJECTS: Final = {
    "job_id": "job",
    "depends_on": "job",
    "batch_id": "batch",
    "corpus_name": "corpus",
    "corpora": "corpus",
    "cursor": "cursor",
    "Idempotency-Key": "key",
    "on_behalf_of": "caller",
    "message_id": "message",
    "upload_id": "upload",
    "document_id": "document",
}
"""Names that mean an object of a caller, and its kind."""
IN_PATHS: Final = {"name": "corpus"}
"""Names that mean one in a path only."""
PLAIN: Final = frozenset(
    (
        *(
            "url",
            "allow_degraded",
            "url_prefix",
            "stale",
            "start",
            "end",
            "urls",
            "content",
            "size",
            "sha256",
            "content_type",
            "code",
            "status",
            "failed_stage",
            "created_after",
            "created_before",
            "limit",
            "receipt",
        ),
        *(
            "If-None-Match",
            "Last-Event-ID",
            "priority",
            "force",
            "job_type",
            "delete",
            "budget",
            "max_age",
            "kind",
            "crawl",
            "dry_run",
            "when_gone",
            "accept",
            "reason",
            "source",
        ),
        *("include_permanent", "stage", "result", "error_code", "error_message", "attempt", "text", "title"),
        *("formats", "only_main_content", "new_name"),
        # Known and unknown ones answer alike: tests/integration/test_shared_by_grant.py.
        "caller_id",
        *("mode", "offset", "min_similarity", "min_bm25", "one_per_document", "explain", "metadata"),
        *("rerank", "filter", "highlights", "neighbours"),
        *("settings", "texts", "chunks", "query", "query_embedding", "top_k", "unknown"),
    )
)
"""Names that mean none."""
UNKNOWN: Final = {
    "job": "7f3a1c1e-9d8b-4a51-8a58-0c6d3a1b2c4d",
    "batch": "7f3a1c1e-9d8b-4a51-8a58-0c6d3a1b2c4e",
    "corpus": "no-such-corpus",
    "new corpus": "not-yet-a-corpus",
    "key": "a-key-that-was-never-used",
    "caller": "0000000000000000",
    "message": "no-such-message",
    "upload": "7f3a1c1e-9d8b-4a51-8a58-0c6d3a1b2c4f",
    "document": "0" * 64,
}
_MAKES_CORPORA: Final = ("/orchestrator/jobs", "/embedding/embed", "/embedding/enqueue")
_MADE: Final = re.compile(
    rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{64}|\d{4}-\d\d-\d\dT[0-9:.]+Z"
    rb'|"(query|embed|search|elapsed)_ms":\d+'
)
"""Ids, digests and times, which each request has its own of."""


@dataclass(frozen=True, slots=True)
class Row:
    """One place of one operation that names an object."""

    method: str
    path: str
    place: str
    """path, query, header or body; "" for the request alone."""
    keys: Keys

    @property
    def names(self) -> str | None:
        """Kind of the object that the place names; None where it names none."""
        key = str(self.keys[-1])
        return OBJECTS.get(key) or (IN_PATHS.get(key) if self.place == "path" else None)

    @property
    def kind(self) -> str:
        """Kind of the object; a corpus that the request would make is one of its own."""
        kind = self.names or ""
        return (
            "new corpus"
            if kind == "corpus" and self.path in _MAKES_CORPORA and self.method == "POST"
            else kind
        )

    def request(self, named: str, known: dict[str, str], page: str) -> dict[str, Any]:
        """Return the request about the object `named`.

        `known` are the caller's own objects, by kind; `page` is a URL that can be fetched.
        """
        fill = {
            "job_id": known["job"],
            "batch_id": known["batch"],
            "name": known["corpus"],
            "document_id": known["document"],
        }
        body = dict(BODIES[self.path]) if self.path in BODIES and self.method == "POST" else None
        if body is not None and "url" in body:
            body["url"] = page
        if self.path == "/orchestrator/jobs" and body is not None:
            body["force"] = True
        headers = {"Content-Type": "application/json"} if body is not None else {}
        query, content = "", None if body is None else json.dumps(body).encode()
        if self.place == "path":
            fill[str(self.keys[0])] = named
        elif self.place == "query":
            query = f"?{self.keys[0]}={named}"
        elif self.place == "header":
            headers[str(self.keys[0])] = named
        elif self.place == "body":
            keys = (*self.keys, 0) if self.keys in (("depends_on",), ("corpora",)) else self.keys
            content = with_value(body or {}, keys, json.dumps(named).encode())
        return {
            "method": self.method,
            "url": self.path.format(**fill) + query,
            "headers": headers,
            "content": content,
        }


def rows() -> list[Row]:
    """Return the matrix."""
    return [row for row in _places() if row.names is not None]


def unclassified() -> list[Row]:
    """Return the places whose names are in neither list."""
    return [row for row in _places() if row.names is None and row.keys[0] not in {*OBJECTS, *PLAIN}]


def _places() -> Iterator[Row]:
    for path, method, operation in operations():
        for parameter in operation.get("parameters", ()):
            yield Row(method, path, parameter["in"], (parameter["name"],))
        if "requestBody" in operation:
            yield from (Row(method, path, "body", keys) for keys in fields(path) if _named(keys))


def _named(keys: Keys) -> bool:
    """Return whether these are the keys of a member of the body, or of an object of a caller within one."""
    return len(keys) == 1 or keys[-1] in OBJECTS


def objects_of(http: httpx.Client, page: str, corpus: str, key: str) -> dict[str, str]:
    """Make one object of each kind."""
    body = {"urls": [page, f"{page}?2"], "corpus_name": corpus}
    made = http.post("/orchestrator/jobs", json=body, headers={"Idempotency-Key": key})
    assert made.status_code == 202
    cursor = http.get("/orchestrator/jobs", params={"limit": 1}).json()["next_cursor"]
    asked = {"size": 5, "sha256": hashlib.sha256(b"words").hexdigest()}
    grant = http.post("/orchestrator/uploads", json=asked).json()
    httpx.put(grant["url"], content=b"words", headers=grant["headers"]).raise_for_status()
    return {
        "upload": grant["upload_id"],
        "job": made.json()["job_id"],
        "batch": made.json()["batch_id"],
        "corpus": corpus,
        "cursor": cursor,
        "key": key,
        "message": "a-message-of-another-caller",
        "document": "1" * 64,
    }


def foreign_objects(stack: RunningStack, page: str) -> dict[str, str]:
    """Make objects of the first caller, among them a job that is done and a corpus with a document."""
    with stack.client() as client, stack.http() as http:
        done = index(client, page, "matrix-foreign")
        assert done.status == "done"
        found = objects_of(http, page, "matrix-foreign", "a-key-of-the-first-caller")
        objects_of(http, page, "matrix-written", "another-key-of-the-first-caller")
    made = {"job": done.job_id, "document": done.document_id or ""}
    return {**found, **made, "new corpus": "matrix-written", "caller": "f" * 16}


def unknown_cursor(cursor: str) -> str:
    """Return a cursor of the same moment whose job is unknown."""
    at, _ = json.loads(base64.urlsafe_b64decode(cursor))
    return base64.urlsafe_b64encode(json.dumps([at, UNKNOWN["job"]]).encode()).decode()


def comparable(status: int, headers: Any, body: bytes, named: str) -> tuple[object, ...]:
    """Return what must be the same: everything but the request's id, and the ids and times of a success."""
    body = body.replace(named.encode(), b"OBJECT")
    if status < 400:
        body = _MADE.sub(b"MADE", body)
    else:
        error = json.loads(body)["error"]
        body = json.dumps({**error, "request_id": ""}).encode()
    own = {"content-type", "retry-after", "cache-control", "x-ratelimit-reason", *_SECURITY}
    kept = sorted((name.lower(), value) for name, value in headers.items() if name.lower() in own)
    return status, kept, body


_SECURITY: Final = frozenset(
    ("x-content-type-options", "x-frame-options", "referrer-policy", "strict-transport-security")
)

"""Every route and every place that names an object, asked with each kind of answer that Membership gives."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from indexmill.contracts.identity import SCOPES
from tests.support.foreign_objects import (
    UNKNOWN,
    Row,
    comparable,
    foreign_objects,
    objects_of,
    rows,
    unknown_cursor,
)
from tests.support.hostile import operations
from tests.support.stack import RunningStack

OPEN: Final = "/orchestrator/health"
ANSWERS: Final = ("no field", "empty list", "its scope", "every other scope", "wrong type")
"""What Membership says of the scopes of the key; a list has one member or all others."""
_OF_CORPORA: Final = frozenset(("corpus", "new corpus", "document"))
"""Kinds of objects that are all callers' where corpora are shared."""


def scopes() -> dict[tuple[str, str], str]:
    """Return the scope of each route that needs a key, by method and path."""
    return {
        (method, path): operation["security"][0]["ApiKey"][0]
        for path, method, operation in operations()
        if path != OPEN
    }


def _claimed(answer: str, scope: str) -> dict[str, Any]:
    lists: dict[str, object] = {
        "empty list": [],
        "its scope": [scope],
        "every other scope": [each for each in SCOPES if each != scope],
        "wrong type": scope,
    }
    return {"scopes": lists[answer]} if answer in lists else {}


@dataclass(frozen=True, slots=True)
class Matrix:
    """Keys of one caller, its objects, and those of another one."""

    stack: RunningStack
    page: str
    keys: dict[tuple[str, str], str]
    """By answer and scope."""
    own: dict[str, str]
    foreign: dict[str, str]

    @classmethod
    def of(cls, stack: RunningStack) -> Matrix:
        """Make the keys and the objects."""
        page = f"{stack.site}/handbook.html"
        keys = {(answer, scope): secrets.token_hex(16) for answer in ANSWERS for scope in SCOPES}
        caller = {"caller_id": "scope-matrix", "caller_type": "user", "tier": "enterprise"}
        add_keys(stack, {key: {**caller, **_claimed(*kind)} for kind, key in keys.items()})
        with stack.http(keys["no field", SCOPES[0]]) as http:
            own = objects_of(http, page, "matrix-own", "a-key-of-the-scoped-caller")
        return cls(stack, page, keys, own, foreign_objects(stack, page))

    def problems(self, answer: str, *, shared: bool = False) -> Iterator[str]:
        """Yield what is wrong with the answers to the keys of one kind; corpora may be shared."""
        with self.stack.http("") as http:
            for (method, path), scope in scopes().items():
                bare = Row(method, path, "", ("",))
                got = self._send(http, answer, scope, bare.request("", self.own, self.page))
                if not _fits(got, answer, scope):
                    yield f"{method} {path}: {got.status_code} {got.text[:300]}"
            for row in rows() if answer != "wrong type" else ():
                theirs = self.foreign[row.kind]
                nobodys = unknown_cursor(theirs) if row.kind == "cursor" else UNKNOWN[row.kind]
                alike = []
                for named in (theirs, nobodys):
                    request = row.request(named, self.own, self.page)
                    got = self._send(http, answer, scopes()[row.method, row.path], request)
                    alike.append(comparable(got.status_code, got.headers, got.content, named))
                visible = shared and row.kind in _OF_CORPORA and answer in ("no field", "its scope")
                if alike[0] != alike[1] and not visible:
                    yield f"{row}: {alike}"

    def _send(self, http: httpx.Client, answer: str, scope: str, request: dict[str, Any]) -> httpx.Response:
        headers = {**request["headers"], "X-API-Key": self.keys[answer, scope]}
        return http.request(**{**request, "headers": headers})


def _fits(got: httpx.Response, answer: str, scope: str) -> bool:
    """Return whether this is what a sound request of one's own gets by a key of this kind."""
    error = got.json()["error"] if got.status_code >= 400 else {"code": "", "message": ""}
    if answer == "wrong type":
        return (got.status_code, error["code"]) == (503, "auth_unavailable")
    if answer in ("empty list", "every other scope"):
        missing = (got.status_code, error["code"]) == (403, "insufficient_scope")
        return missing and f" {scope}," in error["message"] and bool(error["hint"])
    return error["code"] not in (
        "insufficient_scope",
        "invalid_api_key",
        "auth_unavailable",
        "internal_error",
    )


def add_keys(stack: RunningStack, claims: dict[str, dict[str, Any]]) -> None:
    """Let Membership know keys, with their claims."""
    file = Path(stack.state) / "membership-keys.json"
    # Membership must never read half of it.
    new = file.with_suffix(".new")
    new.write_text(json.dumps({**json.loads(file.read_text()), **claims}))
    new.replace(file)

"""Hostile values, and every place of the OpenAPI document where a caller can put one."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from tests.support import openapi
from tests.support.refusals import BODIES, JOB_ID, MARK, RIVALS, UNKNOWN_OBJECTS

Keys = tuple[str | int, ...]
_HOLE: Final = "@@hole@@"

_NUMBERS: Final = (
    *("-1", "0", "1", "2", "63", "64", "99", "100", "101", "200", "201", "2048", "2049"),
    *(
        str(2**31 - 1),
        str(2**31),
        str(-(2**31) - 1),
        "3000000000",
        str(2**63 - 1),
        str(2**63),
        str(-(2**63) - 1),
    ),
    *("1.5", "10.0", "-0.0", "1e308", "1e309", "1e-400", "NaN", "Infinity", "-Infinity"),
    *("9" * 400, "9" * 5000),
)
_KINDS: Final = (
    *("null", "true", "false", "[]", "{}", "[null]", '[""]', '{"$ne": 1}', '{"__proto__": {"x": 1}}'),
    *("[" * 100 + "]" * 100, "[" * 5000 + "]" * 5000, '{"a":' * 500 + "1" + "}" * 500, '{"a": 1, "a": 2}'),
)
_STRINGS: Final = (
    *("", " ", "\t\n", MARK, "x" * 101, "x" * 2049, "x" * 33_000, "1", "true", "null", "NaN"),
    *(
        f"{MARK}\x00",
        f"{MARK}\x01",
        f"\x1b[31m{MARK}",
        f"{MARK}\x7f",
        f"{MARK}\x85",
        f"{MARK}\r\nX-Injected: 1",
    ),
    *(
        "\ud800",
        "\udfff\ud800",
        f"{MARK}\ufffe",
        "\uffff",
        f"\u202e{MARK}",
        "\u200b\u200d",
        "\ufeff",
        "\U0001f989" * 50,
    ),
    *("e" + "\u0301" * 500, "\uff11\uff12\uff17.0.0.1", "\u0661\u0660", "ﷺ" * 200),
    *(
        "'; DROP TABLE jobs; --",
        "1' OR '1'='1",
        '{"match_all": {}}',
        "*:* OR _exists_:a",
        "%",
        "_",
        "\\",
        '"',
    ),
    *(f"<script>{MARK}</script>", f"${{jndi:ldap://{MARK}}}", "{{7*7}}", "%s%n%00", "../../etc/passwd"),
    *("http://127.0.0.1:9001/", "file:///etc/passwd", f"http://{MARK}@a.example/", "http://[::1", "https://"),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999-23:59", "2026-02-30", "P1D", "1e400"),
    *(JOB_ID.upper(), JOB_ID, "00000000-0000-0000-0000-000000000000"),
)
_BYTES: Final = (b'"\xff\xfe"', b'"\xc0\xaf"', b'"\xed\xa0\x80"', b'"\x01"', b'"\x00"', b'"' + MARK.encode())
BODY_VALUES: Final = (
    *(each.encode() for each in (*_NUMBERS, *_KINDS)),
    *(json.dumps(each).encode() for each in _STRINGS),
    *_BYTES,
)
"""Members of a body, verbatim; some make it no JSON."""
TEXT_VALUES: Final = (
    *(each for each in (*_NUMBERS, *_KINDS) if len(each) < 3000),
    *(quote(each.encode("utf-8", "surrogatepass"), safe="") for each in _STRINGS if len(each) < 3000),
    *("%", "%zz", "%ff%fe", "%c0%af", "%u0000", "a;b=c", "a&limit=1", "a#b"),
)
"""Parts of a URL, verbatim."""
HEADER_VALUES: Final = (
    *(each for each in _NUMBERS if len(each) < 3000),
    *("", MARK, "x" * 101, "x" * 300, "x" * 2049, "*", 'W/"x"', '"', ",,,", "a b", "'; DROP TABLE jobs; --"),
    *("\u00e9", "\u00ff\u00fe", "gzip", "text/html", "application/json; charset=utf-16", "{}", "../", "null"),
)
_HEADERS: Final = (
    "X-Request-Id",
    "Accept",
    "Authorization",
    "Cookie",
    "Origin",
    "User-Agent",
    "X-Forwarded-For",
)
"""Headers that every endpoint may get, beside those that it declares."""
_WITH_ANY_HEADER: Final = ("/orchestrator/jobs/summary", "/chunking/chunk")
"""They are read in one place, so two endpoints are enough."""


_WORST: Final = ("%00", "\\u0000", "3000000000")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request with one hostile value."""

    method: str
    path: str
    """Of the document."""
    place: str
    url: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def is_worst(self) -> bool:
        """True for values that a database refuses: NUL, and numbers larger than their column."""
        return any(each in self.url or each.encode() in (self.body or b"") for each in _WORST)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, method and operation of everything in the document."""
    for path, methods in openapi.document()["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def attempts(page: str) -> Iterator[Attempt]:
    """Yield each value in each place; `page` is a URL that can be fetched."""
    for path, method, operation in operations():
        sound = path.format(**UNKNOWN_OBJECTS)
        known = {**BODIES[path]} if path in BODIES and method == "POST" else None
        if known is not None and "url" in known:
            known["url"] = page
        body = None if known is None else json.dumps(known).encode()
        for each in operation.get("parameters", ()):
            yield from _parameter(path, method, each, sound, body)
        for name in _HEADERS if path in _WITH_ANY_HEADER else ():
            for value in HEADER_VALUES:
                yield Attempt(method, path, f"header.{name}", sound, body, {name: value})
        if known is not None:
            for keys in fields(path):
                for value in BODY_VALUES:
                    yield Attempt(method, path, f"body.{keys}", sound, with_value(known, keys, value))


def _parameter(
    path: str, method: str, parameter: dict[str, Any], sound: str, body: bytes | None
) -> Iterator[Attempt]:
    name, place = parameter["name"], f"{parameter['in']}.{parameter['name']}"
    if parameter["in"] == "header":
        for value in HEADER_VALUES:
            yield Attempt(method, path, place, sound, body, {name: value})
        return
    for value in TEXT_VALUES:
        if parameter["in"] == "path":
            yield Attempt(method, path, place, path.format(**{**UNKNOWN_OBJECTS, name: value}), body)
        else:
            yield Attempt(method, path, place, f"{sound}?{name}={value}", body)


def fields(path: str) -> list[Keys]:
    """Return every place in the endpoint's body, nested ones too, and one that it does not have."""
    schema = openapi.document()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return [*_below(schema, ()), ("unknown",), *_RESULTS.get(path, ())]


_RESULTS: Final[dict[str, tuple[Keys, ...]]] = {
    "/orchestrator/jobs/{job_id}/complete": tuple(
        ("result", name)
        for name in ("text", "title", "content_type", "final_url", "chunks", "chunk_count", "model")
    ),
}
"""Members of an object that the document leaves open."""


def _below(schema: dict[str, Any], keys: Keys) -> Iterator[Keys]:
    schema = _resolved(schema)
    for name, inner in schema.get("properties", {}).items():
        yield (*keys, name)
        yield from _below(inner, (*keys, name))
    if "items" in schema:
        yield (*keys, 0)
        yield from _below(schema["items"], (*keys, 0))


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Follow references, and take what is not null of a choice."""
    while "$ref" in schema or "anyOf" in schema or "allOf" in schema:
        if "$ref" in schema:
            schema = openapi.document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        else:
            choices = schema.get("anyOf") or schema["allOf"]
            schema = next(each for each in choices if each.get("type") != "null")
    return schema


def with_value(sound: dict[str, Any], keys: Keys, value: bytes) -> bytes:
    """Return the sound body with `value` at `keys`, verbatim."""
    body = copy.deepcopy(sound)
    body.pop(RIVALS.get(str(keys[0]), ""), None)
    place: Any = body
    for key, following in zip(keys, (*keys[1:], None), strict=True):
        empty: Any = _HOLE if following is None else [] if isinstance(following, int) else {}
        if isinstance(place, list):
            place[:] = [empty]
            place = place[0]
        else:
            known = place.get(key)
            place[key] = known if following is not None and isinstance(known, type(empty)) else empty
            place = place[key]
    if keys[:2] == ("chunks", 0) and len(keys) > 2:
        body["chunks"][0] = {"text": "words", **body["chunks"][0]}
    if keys[0] == "content" and len(keys) > 1:
        text = {} if keys[1] in ("base64", "upload_id") else {"text": "words"}
        body["content"] = {"name": "n", **text, **body["content"]}
    return json.dumps(body).encode().replace(json.dumps(_HOLE).encode(), value)

"""Page that shows an OpenAPI document: plain HTML with no script, and nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

import yaml

PATH: Final = "/docs"
HEADERS: Final = [
    ("Content-Type", "text/html; charset=utf-8"),
    # The browser requests nothing for this page, from this machine or another.
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
]
_STYLE: Final = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font:13px/1.45 ui-monospace,monospace}pre{background:#8881;padding:.7rem;overflow:auto}
table{border-collapse:collapse;width:100%}td{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0}
section{border-top:1px solid #8886;margin-top:1.5rem}nav li{list-style:none}:root{color-scheme:light dark}"""
_BOUNDS: Final = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "&gt; {}",
    "maximum": "≤ {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
}
_TEXTUAL: Final = {"pattern": "pattern {}", "default": "default {}"}
Node = Mapping[str, Any]


def render(path: Path) -> bytes:
    """Return the page for the OpenAPI document in the file `path`."""
    # The parser in C: the other takes a second.
    document = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return "\n".join(_page(document)).encode()


def _page(document: Node) -> Iterator[str]:
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
    yield f"<h1>{title}</h1>{_text(document['info'])}<nav><ul>"
    operations = [
        (f"{method.upper()} {path}", each)
        for path, methods in document["paths"].items()
        for method, each in methods.items()
    ]
    for name, each in operations:
        yield f'<li><a href="#{_anchor(name)}"><code>{escape(name)}</code></a> {escape(each["summary"])}</li>'
    yield "</ul></nav>"
    for name, each in operations:
        yield from _operation(name, each, document.get("security", []))
    yield "<h2>Schemas</h2>"
    for name, schema in document["components"]["schemas"].items():
        yield from _schema(name, schema)


def _operation(name: str, operation: Node, security: Iterable[Node]) -> Iterator[str]:
    yield f'<section id="{_anchor(name)}"><h2><code>{escape(name)}</code></h2>'
    yield f"<h3>{escape(operation['summary'])}</h3>{_text(operation)}"
    ways = [way for each in operation.get("security", security) for way in each.items()]
    named = [f"{scheme} with the scope {', '.join(scopes)}" if scopes else scheme for scheme, scopes in ways]
    yield f"<p>Authorized by: {escape(', or '.join(named) or 'nothing')}</p>"
    if parameters := operation.get("parameters"):
        yield "<h4>Parameters</h4>" + _table(
            (each["name"], f"{escape(each['in'])}, {_type(each['schema'])}", each.get("required"), each)
            for each in parameters
        )
    if body := operation.get("requestBody"):
        yield "<h4>Request</h4>" + _contents(body)
    for status, response in operation["responses"].items():
        yield f"<h4>{escape(status)} {escape(response['description'])}</h4>"
        if headers := response.get("headers"):
            yield _table((each, _type(value["schema"]), None, value) for each, value in headers.items())
        yield _contents(response)
    yield "</section>"


def _contents(body: Node) -> str:
    parts = []
    for media_type, content in body.get("content", {}).items():
        parts.append(f"<p><code>{escape(media_type)}</code>: {_type(content.get('schema', {}))}</p>")
        examples = [each["value"] for each in content.get("examples", {}).values()]
        parts += map(_example, [content["example"]] if "example" in content else examples)
    return "".join(parts)


def _schema(name: str, schema: Node) -> Iterator[str]:
    yield f'<section id="{_anchor(name)}"><h3><code>{escape(name)}</code></h3>{_text(schema)}'
    if "properties" in schema:
        required = schema.get("required", ())
        yield _table(
            (each, _type(value), each in required, value) for each, value in schema["properties"].items()
        )
    else:
        yield f"<p>{_type(schema)}</p>"
    yield "".join(map(_example, schema.get("examples", ())))
    yield "</section>"


def _table(rows: Iterable[tuple[str, str, bool | None, Node]]) -> str:
    """Return a table of names, types that are HTML already, whether each is required, and descriptions."""
    lines = (
        f"<tr><td><code>{escape(name)}</code>{' required' if required else ''}<td>{kind}<td>{_text(node)}"
        for name, kind, required, node in rows
    )
    return f"<table>{''.join(lines)}</table>"


def _type(schema: Node) -> str:
    """Return a schema in a few words, with links to those that it names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{_anchor(name)}">{escape(name)}</a>'
    if parts := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        words = " or ".join(map(_type, parts))
    elif "enum" in schema or "const" in schema:
        words = ", ".join(_code(each) for each in schema.get("enum", [schema.get("const")]))
    elif schema.get("type") == "array":
        words = f"list of {_type(schema.get('items', {}))}"
    elif schema.get("type") == "object" and "properties" in schema:
        required = schema.get("required", ())
        words = _table(
            (each, _type(value), each in required, value) for each, value in schema["properties"].items()
        )
    elif isinstance(schema.get("additionalProperties"), Mapping):
        words = f"object of {_type(schema['additionalProperties'])}"
    else:
        words = escape(str(schema.get("type", "any value")))
    bounds = [form.format(escape(str(schema[each]))) for each, form in _BOUNDS.items() if each in schema]
    bounds += [
        form.format(_code(schema[each])) for each, form in _TEXTUAL.items() if schema.get(each) is not None
    ]
    return ", ".join([words, *bounds])


def _text(node: Node) -> str:
    paragraphs = str(node.get("description", "")).split("\n\n")
    return "".join(f"<p>{escape(each)}</p>" for each in paragraphs if each)


def _example(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return f"<pre>{escape(text)}</pre>"


def _code(value: Any) -> str:
    return f"<code>{escape(json.dumps(value, ensure_ascii=False))}</code>"


def _anchor(name: str) -> str:
    return escape(name.replace(" ", "-"))

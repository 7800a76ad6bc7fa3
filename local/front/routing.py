"""Lookup of the resource and method of a request path, with API Gateway's precedence."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from local.template.spec import RouteSpec

_ANY = "ANY"


@dataclass(frozen=True, slots=True)
class Match:
    """Matched route, with the path parameters as in the URL (still percent-encoded)."""

    route: RouteSpec
    resource_id: str
    parameters: Mapping[str, str]


@dataclass(slots=True)
class _Node:
    """Resource of the tree: a literal child takes precedence over `{name}`, that over `{name+}`."""

    literals: dict[str, _Node] = field(default_factory=dict)
    parameter: tuple[str, _Node] | None = None
    greedy: tuple[str, _Node] | None = None
    methods: dict[str, RouteSpec] = field(default_factory=dict)
    path: str = ""


class Router:
    """Declared routes as a tree of path segments.

    Raises ValueError at construction for what API Gateway would reject: one method twice on a path, or two
    parameter names in one place.
    """

    def __init__(self, routes: Iterable[RouteSpec]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def _add(self, route: RouteSpec) -> None:
        node = self._root
        for segment in _segments(route.path):
            node = _child(node, segment, route.path)
        node.path = route.path
        method = _ANY if route.method in {"*", "x-amazon-apigateway-any-method"} else route.method.upper()
        if method in node.methods:
            raise ValueError(f"{method} {route.path} is declared twice")
        node.methods[method] = route

    def find(self, method: str, path: str) -> Match | None:
        """Return the route for `method` on the still percent-encoded `path`, or None without such a pair.

        A trailing slash matches its own route when one is declared, else the resource without it.
        """
        found = self._resource(path)
        if found is None:
            return None
        node, parameters = found
        route = node.methods.get(method) or node.methods.get(_ANY)
        return Match(route, resource_id(node.path), parameters) if route else None

    def has(self, path: str) -> bool:
        """Return whether any method is declared on the resource of `path`."""
        return self._resource(path) is not None

    def _resource(self, path: str) -> tuple[_Node, dict[str, str]] | None:
        parameters: dict[str, str] = {}
        segments = _segments(path)
        node = _descend(self._root, segments, 0, parameters)
        if node is None and len(segments) > 1 and segments[-1] == "":
            parameters.clear()
            node = _descend(self._root, segments[:-1], 0, parameters)
        return None if node is None else (node, parameters)


def resource_id(path: str) -> str:
    """Return a stable six-character id, as API Gateway gives each resource."""
    return hashlib.sha256(path.encode()).hexdigest()[:6]


def _segments(path: str) -> list[str]:
    return path.removeprefix("/").split("/")


def _child(node: _Node, segment: str, path: str) -> _Node:
    if not (segment.startswith("{") and segment.endswith("}")):
        return node.literals.setdefault(segment, _Node())
    name = segment[1:-1]
    known = node.greedy if name.endswith("+") else node.parameter
    if known is not None:
        if known[0] != name.removesuffix("+"):
            raise ValueError(f"{path}: one place has two parameter names, {known[0]} and {name}")
        return known[1]
    if name.endswith("+"):
        node.greedy = (name[:-1], _Node())
        return node.greedy[1]
    node.parameter = (name, _Node())
    return node.parameter[1]


def _descend(node: _Node, segments: list[str], at: int, parameters: dict[str, str]) -> _Node | None:
    """Return the resource under `node` for the segments from `at` on; fills `parameters` on the way back."""
    if at == len(segments):
        return node if node.methods else None
    segment = segments[at]
    literal = node.literals.get(segment)
    if literal is not None and (found := _descend(literal, segments, at + 1, parameters)):
        return found
    if not segment:
        return None
    if node.parameter is not None and (found := _descend(node.parameter[1], segments, at + 1, parameters)):
        parameters[node.parameter[0]] = segment
        return found
    if node.greedy is not None and node.greedy[1].methods:
        parameters[node.greedy[0]] = "/".join(segments[at:]).removesuffix("/")
        return node.greedy[1]
    return None

"""Mock integration: an answer of the gateway itself, whose mapping template may override headers.

Of the template language there is what such a template needs: `#set` of a variable or of a header
(`$context.responseOverride.header.NAME`), `#if` with `==` or `.contains(…)`, `$input.params(…)`,
`.replaceAll(…, …)`, and variables in text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from local.front.events import Headers, query_values
from local.front.exchange import Exchange
from local.front.replies import Reply
from local.template.spec import MockSpec

_DIRECTIVE = re.compile(
    r"""
    \#set\( (?P<set>\$[\w.-]+) [ ]=[ ] (?P<value>.+?) \) (?=\#|\s|$)
    | \#if\( (?P<if>.+?) \) (?=\#|\s|$)
    | (?P<end>\#end)
    | \s+
    """,
    re.VERBOSE,
)
_OVERRIDE = "$context.responseOverride.header."
_PARAMETER = re.compile(r'\$input\.params\("([^"]+)"\)')
_TEXT = re.compile(r'"([^"]*)"')
_NAME = re.compile(r"\$(\w+)")
_EQUALS = re.compile(r"(\S+) == (\S+)")
_REPLACE_ALL = re.compile(r'(\$\w+)\.replaceAll\("([^"$\\]+)", "([^"$\\]*)"\)')
_CONTAINS = re.compile(r"(\$\w+)\.contains\((.+)\)")


class Mock:
    """Mock integration of one route. Raises ValueError for a template that this language has not."""

    def __init__(self, spec: MockSpec) -> None:
        self._spec = spec
        _overrides(spec.template, {})

    def reply(self, exchange: Exchange, headers: Headers, path: Mapping[str, str]) -> Reply:
        """Return the answer to one request."""
        query = {name: values[-1] for name, values in query_values(exchange.query).items()}
        sent = {name: values[-1] for name, values in headers.multi.items()}
        own = {**self._spec.headers, **_overrides(self._spec.template, {**sent, **query, **path})}
        exchange.integration_status = self._spec.status
        return Reply(self._spec.status, list(own.items()), b"")


def _overrides(template: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the template sets for a request with these parameters."""
    values: dict[str, str] = {}
    holds: list[bool] = []
    at = 0
    while at < len(template):
        found = _DIRECTIVE.match(template, at)
        if found is None:
            raise ValueError(f"the mapping template has {template[at:][:40]!r}, which is not known here")
        at = found.end()
        if found["if"]:
            holds.append(_condition(found["if"], values, parameters))
        elif found["end"]:
            holds.pop()
        elif found["set"]:
            value = _value(found["value"], values, parameters)
            if all(holds):
                values[found["set"]] = value
    if holds:
        raise ValueError("the mapping template has an #if without #end")
    return {
        name.removeprefix(_OVERRIDE): value for name, value in values.items() if name.startswith(_OVERRIDE)
    }


def _condition(text: str, values: Mapping[str, str], parameters: Mapping[str, str]) -> bool:
    compare: Callable[[str, str], bool]
    if found := _EQUALS.fullmatch(text):
        compare = str.__eq__
    elif found := _CONTAINS.fullmatch(text):
        compare = str.__contains__
    else:
        raise ValueError(f"the mapping template has the condition {text!r}, which is not known here")
    left, right = (_value(part, values, parameters) for part in found.groups())
    return compare(left, right)


def _value(text: str, values: Mapping[str, str], parameters: Mapping[str, str]) -> str:
    if found := _PARAMETER.fullmatch(text):
        return parameters.get(found[1], "")
    if found := _REPLACE_ALL.fullmatch(text):
        return re.sub(found[2], found[3], _value(found[1], values, parameters))
    if found := _TEXT.fullmatch(text):
        return _NAME.sub(lambda name: values.get(name[0], name[0]), found[1])
    if _NAME.fullmatch(text) and text in values:
        return values[text]
    raise ValueError(f"the mapping template has the value {text!r}, which is not known here")

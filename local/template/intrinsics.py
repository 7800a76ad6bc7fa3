"""CloudFormation's intrinsic functions, resolved to plain values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_VARIABLE: Final = re.compile(r"\$\{(!?)([\w:.]+)\}")


class TemplateError(ValueError):
    """Raised when the template is inconsistent, or needs something that is not supported."""


class Absent:
    """Type of NO_VALUE."""


NO_VALUE: Final = Absent()
"""Value of `AWS::NoValue`: the property, or the list item, is left out."""


class Unresolved(LookupError):
    """Raised for a name that has no value (yet)."""


class Resolver:
    """Resolves values against names.

    Args:
        names: Values for `Ref`: parameters, pseudo parameters, physical ids.
        attributes: Values for `Fn::GetAtt`, by `"LogicalId.Attribute"`.
        conditions: The template's Conditions, unresolved.
        mappings: The template's Mappings.
        keep_references: Leave functions of unknown names as they are, in place of an error.
    """

    def __init__(
        self,
        names: Mapping[str, Any],
        attributes: Mapping[str, str] | None = None,
        *,
        conditions: Mapping[str, Any] | None = None,
        mappings: Mapping[str, Any] | None = None,
        keep_references: bool = False,
    ) -> None:
        self._names = {"AWS::NoValue": NO_VALUE, **names}
        self._attributes = attributes or {}
        self._conditions = conditions or {}
        self._mappings = mappings or {}
        self._keep = keep_references
        self._functions: dict[str, Callable[[Any], Any]] = {
            "Ref": self._ref,
            "Fn::GetAtt": self._get_att,
            "Fn::Sub": self._sub,
            "Fn::Join": lambda of: str(of[0]).join(map(str, self.resolve(of[1]))),
            "Fn::Split": lambda of: str(self.resolve(of[1])).split(of[0]),
            "Fn::Select": lambda of: self.resolve(of[1])[int(self.resolve(of[0]))],
            "Fn::If": lambda of: self.resolve(of[1] if self.condition(of[0]) else of[2]),
            "Fn::FindInMap": self._find_in_map,
            "Fn::Equals": lambda of: str(self.resolve(of[0])) == str(self.resolve(of[1])),
            "Fn::Not": lambda of: not self.resolve(of[0]),
            "Fn::And": lambda of: all(self.resolve(each) for each in of),
            "Fn::Or": lambda of: any(self.resolve(each) for each in of),
            "Condition": self.condition,
        }

    def resolve(self, node: Any) -> Any:
        """Return `node` with its functions evaluated. Raises TemplateError for a name without a value."""
        if isinstance(node, list):
            return [value for value in map(self.resolve, node) if value is not NO_VALUE]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            (name, argument), *_ = node.items()
            # A resource's own `Condition: Name` never occurs here alone: it has a Type beside it.
            if name in self._functions:
                return self._call(name, argument, node)
            if name.startswith("Fn::"):
                raise TemplateError(f"{name} is not known here")
        resolved = {name: self.resolve(value) for name, value in node.items()}
        return {name: value for name, value in resolved.items() if value is not NO_VALUE}

    def condition(self, name: str) -> bool:
        """Return whether the named condition is true. Raises TemplateError when there is none."""
        if name not in self._conditions:
            raise TemplateError(f"there is no condition {name}")
        return bool(self.resolve(self._conditions[name]))

    def includes(self, resource: Mapping[str, Any]) -> bool:
        """Return whether the resource's own condition, if it has one, is true."""
        return "Condition" not in resource or self.condition(resource["Condition"])

    def _call(self, name: str, argument: Any, node: dict[str, Any]) -> Any:
        try:
            return self._functions[name](argument)
        except Unresolved as missing:
            if self._keep:
                return node
            raise TemplateError(f"{name} of {missing} has no value here") from missing

    def _ref(self, name: str) -> Any:
        if name not in self._names:
            raise Unresolved(name)
        return self._names[name]

    def _get_att(self, argument: str | list[str]) -> str:
        path = argument if isinstance(argument, str) else ".".join(argument)
        if path not in self._attributes:
            raise Unresolved(path)
        return self._attributes[path]

    def _sub(self, argument: str | list[Any]) -> str:
        text, own = (argument, {}) if isinstance(argument, str) else (argument[0], self.resolve(argument[1]))

        def value(found: re.Match[str]) -> str:
            literal, name = found.groups()
            if literal:
                return f"${{{name}}}"
            if name in own:
                return str(own[name])
            known = self._get_att(name) if "." in name else self._ref(name)
            return ",".join(known) if isinstance(known, list) else str(known)

        return _VARIABLE.sub(value, text)

    def _find_in_map(self, argument: list[Any]) -> Any:
        name, first, second = (self.resolve(each) for each in argument)
        try:
            return self._mappings[name][first][second]
        except KeyError as missing:
            raise TemplateError(f"mapping {name} has no {first}.{second}") from missing

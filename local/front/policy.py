"""Evaluation of an authorizer's policy document against one method ARN."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

_INVOKE = "execute-api:invoke"


class Decision(Enum):
    """Outcome of a policy for one method."""

    ALLOW = "allow"
    EXPLICIT_DENY = "explicit deny"
    IMPLICIT_DENY = "implicit deny"


class PolicyError(ValueError):
    """Raised when the document is no policy that API Gateway accepts, or uses unsupported elements."""


@dataclass(frozen=True, slots=True)
class _Statement:
    allow: bool
    resources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """Statements of a document that are about invoking; others have no effect."""

    statements: tuple[_Statement, ...]

    def decide(self, method_arn: str) -> Decision:
        """Return the decision: an explicit deny overrides an allow; the default is deny."""
        decision = Decision.IMPLICIT_DENY
        for statement in self.statements:
            if not any(_pattern(resource).fullmatch(method_arn) for resource in statement.resources):
                continue
            if not statement.allow:
                return Decision.EXPLICIT_DENY
            decision = Decision.ALLOW
        return decision


def read_policy(document: object) -> Policy:
    """Read a policy document. Raises PolicyError when it is malformed.

    Conditions, NotAction and NotResource are rejected rather than ignored: ignoring one could allow a call
    that AWS denies.
    """
    statements = document.get("Statement") if isinstance(document, Mapping) else None
    if isinstance(statements, Mapping):
        statements = [statements]
    if not isinstance(statements, list) or not statements:
        raise PolicyError("the policy document has no Statement")
    return Policy(tuple(read for statement in statements if (read := _read_statement(statement)) is not None))


def _read_statement(statement: Any) -> _Statement | None:
    if not isinstance(statement, Mapping):
        raise PolicyError("a statement is not an object")
    if statement.get("Effect") not in {"Allow", "Deny"}:
        raise PolicyError("Effect is neither Allow nor Deny")
    for key in ("Condition", "NotAction", "NotResource"):
        if statement.get(key):
            raise PolicyError(f"{key} is not evaluated here")
    actions = _strings(statement.get("Action"), "Action")
    resources = _strings(statement.get("Resource"), "Resource")
    if not any(_pattern(action.lower()).fullmatch(_INVOKE) for action in actions):
        return None
    return _Statement(statement["Effect"] == "Allow", tuple(resources))


def _strings(value: object, what: str) -> Iterable[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values or not all(isinstance(v, str) and v for v in values):
        raise PolicyError(f"{what} is not a string or a list of strings")
    return values


@lru_cache(maxsize=1024)
def _pattern(wildcard: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c, re.escape(c)) for c in wildcard), re.DOTALL)

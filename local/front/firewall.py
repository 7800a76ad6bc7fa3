"""Firewall before the API: the rules of a web ACL, evaluated ahead of routes and authorizers."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from local.front.events import Headers
from local.front.exchange import Exchange
from local.front.gateway_responses import GatewayError
from local.front.replies import Reply
from local.template.spec import BodySizeRule, RateRule, WebAclSpec

_MOST_VALUES = 10_000
"""Addresses or keys that one rule counts at a time, as many as WAF limits; the oldest is forgotten."""


class Firewall:
    """Rules of one web ACL. Rates are counted exactly and at once; WAF estimates them every few seconds."""

    def __init__(self, spec: WebAclSpec, monotonic: Callable[[], float]) -> None:
        self._spec = spec
        self._monotonic = monotonic
        self._rates = {rule.name: _Rate(rule) for rule in spec.rules if isinstance(rule, RateRule)}

    def needs_body(self, exchange: Exchange) -> bool:
        """Return whether a rule looks at the body of this request."""
        return any(
            isinstance(rule, BodySizeRule) and rule.path.search(exchange.stage_path)
            for rule in self._spec.rules
        )

    def check(self, exchange: Exchange, headers: Headers, body_bytes: int) -> Reply | None:
        """Return the answer of the first rule that blocks the request, None if none does.

        Raises the GatewayError of a rule without an answer of its own. Records the outcome in `exchange`.
        """
        exchange.web_acl = self._spec.arn
        exchange.waf_response = "WAF_ALLOW"
        for rule in self._spec.rules:
            if isinstance(rule, RateRule):
                blocks = self._exceeds(rule, exchange, headers)
            else:
                blocks = body_bytes > rule.most_bytes and bool(rule.path.search(exchange.stage_path))
            if blocks:
                return _blocked(rule, exchange)
        return None

    def _exceeds(self, rule: RateRule, exchange: Exchange, headers: Headers) -> bool:
        # The connection's address: what a client writes into X-Forwarded-For is not looked at.
        values = [exchange.source_ip] if rule.header is None else headers.get_all(rule.header)
        if not values:
            return False
        return self._rates[rule.name].count(",".join(values), self._monotonic())


def _blocked(rule: RateRule | BodySizeRule, exchange: Exchange) -> Reply:
    exchange.waf_response = "WAF_BLOCK"
    own = rule.response
    if own is None:
        raise GatewayError("WAF_FILTERED", reason=rule.name)
    exchange.error_type, exchange.error_message = "WAF_FILTERED", "Forbidden"
    return Reply(own.status, [("Content-Type", own.content_type), *own.headers.items()], own.body.encode())


@dataclass(slots=True)
class _Window:
    """Requests of one value, in slots of a second."""

    slots: deque[list[int]] = field(default_factory=deque)
    total: int = 0


class _Rate:
    """Counts the requests of the last `window_s` seconds by value; refused requests count as well."""

    def __init__(self, rule: RateRule) -> None:
        self._rule = rule
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def count(self, value: str, now: float) -> bool:
        """Count one request; return whether it is beyond the limit."""
        window = self._windows.setdefault(value, _Window())
        self._windows.move_to_end(value)
        if len(self._windows) > _MOST_VALUES:
            self._windows.popitem(last=False)
        second = int(now)
        while window.slots and window.slots[0][0] <= second - self._rule.window_s:
            window.total -= window.slots.popleft()[1]
        if not window.slots or window.slots[-1][0] != second:
            window.slots.append([second, 0])
        window.slots[-1][1] += 1
        window.total += 1
        return window.total > self._rule.limit

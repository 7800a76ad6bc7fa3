"""Fault injection into the event sources' own SQS calls."""

from __future__ import annotations

from typing import Any, Final

from local.faults import call_names, effects
from local.faults.control import FaultControl
from local.triggers.sqs_client import SqsClient, SqsError

NAME: Final = "poller"
"""Function name in the names of these calls."""


class FaultySqsClient(SqsClient):
    """SQS client of one queue whose calls can fail. It cannot be killed: on AWS the poller is not ours."""

    def __init__(self, endpoint: str, queue_url: str, *, region: str, control: FaultControl) -> None:
        super().__init__(endpoint, queue_url, region=region)
        self._control = control

    async def _call(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        place, write = call_names.aws_call("sqs", action, arguments)
        rule = self._control.next_fault(f"{NAME}/{place}", write=write)
        if rule is not None and rule.kind.startswith("kill"):
            rule = None
        await effects.before_async(rule, _unreachable)
        answer = await super()._call(action, arguments)
        effects.after(rule, _unreachable)
        return answer


def _unreachable() -> BaseException:
    return SqsError("ServiceUnavailable", "(injected fault)")

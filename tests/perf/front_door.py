"""Cost of limits, identity and audit in a warm request: `python -m tests.perf.front_door`.

One process calls the Orchestrator's handler for a job that is in memory, with and without the limits, which
ask a real endpoint for DynamoDB on this machine; all ways take turns in one run. CPU is of this process.

identity: an authorizer whose key was validated a moment ago. The gateway invokes it once a minute for a key.
audit: one event. A request writes one at most, and a read writes none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.perf.stack_under_test import REPOSITORY

_ROUNDS: Final = 40
_CALLS: Final = 50
_REGION: Final = "eu-west-1"
WAYS: Final = {
    "no limits": None,
    "unlimited caller (sees its block)": {"tier": "pro"},
    "limited by tier": {"tier": "enterprise"},
    "fair share": {},
    "refused": {"tier": "free"},
}
IDENTITY: Final = "identity, when the gateway invokes the authorizer"
AUDIT: Final = "audit, when the request writes an event"
_GIVEN: Final = {
    "RATE_FREE": "1",
    "RATE_PRO": "unlimited",
    "RATE_ENTERPRISE": "999999999",
    "FAIR_SHARE": "capacity=999999999,floor=50",
    "READ_FACTOR": "1",
}


@contextlib.contextmanager
def _endpoint() -> Iterator[str]:
    from local.backends.ministack import MiniStack

    with tempfile.TemporaryDirectory(prefix="indexmill-perf-") as folder, asyncio.Runner() as runner:
        python = REPOSITORY / ".venv-ministack" / "bin" / "python"
        server = MiniStack(Path(folder), python, account_id="123456789012", region=_REGION)
        runner.run(server.start())
        try:
            yield server.endpoint
        finally:
            runner.run(server.stop())


def _calls(endpoint: str) -> dict[str, Callable[[], Any]]:
    """Return a call of the handler for each way."""
    from tests.support.state_table import client_at, new_table

    os.environ |= {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": _REGION,
        "AWS_DEFAULT_REGION": _REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }

    from indexmill.contracts.identity import CallerContext
    from indexmill.orchestrator.http.api import routes
    from indexmill.orchestrator.settings import OrchestratorApiSettings
    from indexmill.orchestrator.wiring import Parts, build_use_cases
    from indexmill.platform.http.app import create_app, lambda_handler, serve
    from indexmill.platform.observability import Observability
    from tests.support.events import FakeContext, api_event, caller_claims
    from tests.support.function_env import environment
    from tests.support.jobs import new_job, submitted
    from tests.twins.clock import FrozenClock
    from tests.twins.jobs import InMemoryJobs
    from tests.twins.queues import InMemoryQueue

    observability = Observability("orchestrator", level="ERROR")
    store, job = InMemoryJobs(FrozenClock()), new_job()
    submitted(store, job)
    queues = {"scraping": InMemoryQueue(), "chunking": InMemoryQueue(), "embedding": InMemoryQueue()}
    given = {**environment("OrchestratorApi"), **_GIVEN, "STATE_TABLE": new_table(client_at(endpoint))}
    settings = OrchestratorApiSettings.from_environment(given)
    api = build_use_cases(settings, Parts(store, dict(queues), observability))

    def call(claims: dict[str, str] | None) -> Callable[[], Any]:
        if claims is None:
            handler = lambda_handler(create_app([routes(api)], observability), observability)
        else:
            handler = serve([routes(api)], settings, observability)
        caller = {**caller_claims(job.target.caller_id), **(claims or {})}
        event = api_event("GET", f"/orchestrator/jobs/{job.job_id}", caller=caller)
        return lambda: handler(event, FakeContext())

    audited = CallerContext(job.target.caller_id, tier="free")
    # A window has one length for one caller: each way has a service's item of its own kind.
    return {
        **{name: call(claims) for name, claims in WAYS.items()},
        IDENTITY: _identity(given["STATE_TABLE"]),
        AUDIT: lambda: observability.emit("internal_rejected", audited, request_id="1", route="/"),
    }


def _identity(table: str) -> Callable[[], Any]:
    """Return a call of the authorizer, with a Membership that is in this process."""
    from indexmill.access.settings import AuthorizerSettings
    from indexmill.access.wiring import build_authorizer
    from tests.support.function_env import environment

    class Membership:
        def authenticate(self, _api_key: str) -> dict[str, Any]:
            return {"tier": "pro"}

    given = {**environment("Authorizer"), "STATE_TABLE": table}
    authorizer = build_authorizer(AuthorizerSettings.from_environment(given), Membership())
    arn = f"arn:aws:execute-api:{_REGION}:123456789012:api/v1/GET/orchestrator/jobs"
    return lambda: authorizer({"methodArn": arn, "headers": {"X-API-Key": "a-key"}})


def measure() -> dict[str, dict[str, float]]:
    """Return milliseconds of CPU and of time of each way, medians of all rounds, and what it adds to none."""
    cpu: dict[str, list[float]] = {name: [] for name in (*WAYS, IDENTITY, AUDIT)}
    took: dict[str, list[float]] = {name: [] for name in cpu}
    with _endpoint() as endpoint, contextlib.redirect_stdout(io.StringIO()):
        calls = _calls(endpoint)
        for name, call in calls.items():
            replies = [call() for _ in range(20)]
            if name in WAYS and replies[-1]["statusCode"] != (429 if name == "refused" else 200):
                raise SystemExit(f"{name}: {replies[-1]}")
        for _ in range(_ROUNDS):
            for name, call in calls.items():
                began = time.process_time()
                for _ in range(_CALLS):
                    before = time.perf_counter()
                    call()
                    took[name].append((time.perf_counter() - before) * 1000)
                cpu[name].append((time.process_time() - began) / _CALLS * 1000)
    base_cpu, base_p50 = statistics.median(cpu["no limits"]), statistics.median(took["no limits"])
    return {
        name: {
            "cpu_ms": round(statistics.median(cpu[name]), 3),
            "p50_ms": round(statistics.median(took[name]), 3),
            "added_cpu_ms": round(statistics.median(cpu[name]) - (base_cpu if name in WAYS else 0), 3),
            "added_p50_ms": round(statistics.median(took[name]) - (base_p50 if name in WAYS else 0), 3),
        }
        for name in cpu
    }


def main() -> None:
    """Print the figures as JSON."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(json.dumps(measure(), indent=2))


if __name__ == "__main__":
    main()

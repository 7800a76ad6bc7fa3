"""CPU of one GET through FastAPI and Mangum, warm, with the jobs in memory: what the framework costs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any, Final

from tests.perf.stack_under_test import REPOSITORY

_CALLS: Final = 500
_ROUNDS: Final = 7


def measure_in_own_process() -> dict[str, float]:
    """Microseconds of CPU per call, in a process that has imported nothing else."""
    paths = (REPOSITORY, REPOSITORY / "layers" / "indexmill" / "python")
    answer = subprocess.run(
        [sys.executable, "-m", "tests.perf.warm_get"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "AWS_REGION": "eu-west-1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the figures as one JSON line."""

    from indexmill.orchestrator.http.api import routes
    from indexmill.orchestrator.settings import OrchestratorApiSettings
    from indexmill.orchestrator.wiring import Parts, build_use_cases
    from indexmill.platform.http.app import create_app, lambda_handler
    from indexmill.platform.observability import Observability
    from tests.support.events import FakeContext, api_event, caller_claims
    from tests.support.function_env import environment
    from tests.support.jobs import new_job, stored_job, submitted
    from tests.twins.clock import FrozenClock
    from tests.twins.jobs import InMemoryJobs
    from tests.twins.queues import InMemoryQueue

    observability = Observability("orchestrator")
    store, job = InMemoryJobs(FrozenClock()), new_job()
    submitted(store, job)
    queues = {"scraping": InMemoryQueue(), "embedding": InMemoryQueue()}
    settings = OrchestratorApiSettings.from_environment(environment("OrchestratorApi"))
    api = build_use_cases(settings, Parts(store, dict(queues), observability))
    app = create_app([routes(api)], observability)
    handler = lambda_handler(app, observability)
    event = api_event("GET", f"/orchestrator/jobs/{job.job_id}", caller=caller_claims())
    reply = handler(event, FakeContext())
    if reply["statusCode"] != 200:
        raise SystemExit(f"the handler answered {reply}")
    store_us = _cpu_us(lambda: stored_job(store, job.target.caller_id, job.job_id))
    print(json.dumps({"get_job": _cpu_us(lambda: handler(event, FakeContext())), "store_alone": store_us}))


def _cpu_us(call: Any) -> float:
    """The median of a few rounds."""
    rounds = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        for _ in range(_CALLS):
            call()
        rounds.append((time.process_time() - began) / _CALLS * 1e6)
    return round(statistics.median(rounds), 1)


if __name__ == "__main__":
    main()

"""The TypeScript client: its types hold, it works on a whole cloud, and it waits as Retry-After says."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from aiohttp import web

from tests.support import typescript
from tests.support.aiohttp_server import served
from tests.support.stack import RunningStack

MISSING = typescript.missing()
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]

SUBMIT = """
import { Client } from CLIENT;
const client = new Client(process.argv[1], "key", { patienceMs: 5000 });
try { console.log(JSON.stringify(await client.submit("https://example.com/"))); }
catch ({ code, status, request_id, retry_after }) {
  console.log(JSON.stringify({ code, status, request_id, retry_after }));
}
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return typescript.compile_to(tmp_path_factory.mktemp("typescript"))


def refusing(retry_after: int, times: list[float]) -> web.Application:
    """Return an API that refuses the first submit."""

    async def submit(request: web.Request) -> web.Response:
        times.append(time.monotonic())
        if len(times) > 1:
            return web.json_response({"job_id": "j", "status": "pending", "url_count": 1}, status=202)
        error = {"code": "rate_limited", "message": "Later.", "request_id": "r", "retry_after": retry_after}
        return web.json_response({"error": error}, status=429, headers={"Retry-After": str(retry_after)})

    app = web.Application()
    app.router.add_post("/orchestrator/jobs", submit)
    return app


def submit(scripts: Path, address: str) -> dict[str, object]:
    program = SUBMIT.replace("CLIENT", json.dumps((scripts / "client.js").as_uri()))
    ran = typescript.run("--input-type=module", "-e", program, "--", address)
    assert ran.returncode == 0, ran.stderr
    said: dict[str, object] = json.loads(ran.stdout)
    return said


def test_it_submits_streams_waits_and_searches(scripts: Path, stack: RunningStack) -> None:
    page = f"{stack.site}/handbook.html"
    ran = typescript.run(str(scripts / "demo.js"), stack.gateway, stack.api_key, page, "broken spine")
    assert ran.returncode == 0, ran.stderr + ran.stdout
    said = json.loads(ran.stdout)
    assert (said["job"]["status"], said["job"]["url"]) == ("done", page)
    assert said["results"][0]["source_url"] == page
    assert ran.stderr.splitlines()[-1].startswith("done: ")


def test_an_error_has_its_code_and_request(scripts: Path, stack: RunningStack) -> None:
    ran = typescript.run(str(scripts / "demo.js"), stack.gateway, "none", f"{stack.site}/", "question")
    said = json.loads(ran.stdout)
    assert (ran.returncode, said["code"], said["status"]) == (1, "invalid_api_key", 401)
    assert said["request_id"]


def test_a_refused_submit_is_repeated_after_its_retry_after(scripts: Path) -> None:
    times: list[float] = []
    with served(refusing(1, times)) as address:
        assert submit(scripts, address)["job_id"] == "j"
    assert len(times) == 2
    assert times[1] - times[0] >= 0.99


def test_a_longer_wait_than_its_patience_is_an_error_at_once(scripts: Path) -> None:
    times: list[float] = []
    with served(refusing(3600, times)) as address:
        said = submit(scripts, address)
    assert said == {"code": "rate_limited", "status": 429, "request_id": "r", "retry_after": 3600}
    assert len(times) == 1

"""The installed Python client, without the library of the functions, against the whole cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import client_package
from tests.support.stack import RunningStack

pytestmark = pytest.mark.e2e

PROGRAM = """
import json
from indexmill.client import ApiError, Client

gateway, key, url = sys.argv[1:]
with Client(gateway, key) as client:
    accepted = client.submit(url, "packaged")
    (job,) = client.wait([accepted.job_id], timeout_s=60)
    found = client.search("spine", "packaged", top_k=3)
    entries = client.history(job.job_id).entries
with Client(gateway, "none") as stranger:
    try:
        stranger.get(job.job_id)
    except ApiError as error:
        refused = error
print(json.dumps({
    "status": job.status, "hits": len(found.results), "entries": len(entries),
    "code": refused.code, "request_id": refused.request_id,
    "modules": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""
OF_THE_FUNCTIONS = {"aws_lambda_powertools", "boto3", "botocore", "fastapi", "mangum", "psycopg", "starlette"}


def test_the_installed_client_submits_waits_and_searches(stack: RunningStack, tmp_path: Path) -> None:
    wheel = client_package.build(tmp_path / "wheel")
    folder = client_package.install(wheel, tmp_path / "installed")
    said = client_package.run(folder, PROGRAM, stack.gateway, stack.api_key, f"{stack.site}/handbook.html")
    assert said["status"] == "done"
    assert said["hits"] >= 1
    assert said["entries"] >= 4
    assert (said["code"], bool(said["request_id"])) == ("invalid_api_key", True)
    assert OF_THE_FUNCTIONS.isdisjoint(said["modules"])

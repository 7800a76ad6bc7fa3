"""The Migrator answers CloudFormation, which waits for it before it changes any other function.

Its handler runs in a process on a copy of sql/, as Lambda starts it: that folder alone is its package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from local.backends.postgres import create_database, drop_database
from local.faults.toxics import Toxic
from tests.support.lines import line_to
from tests.support.repository import ROOT
from tests.support.stack import eventually

pytestmark = [pytest.mark.integration, pytest.mark.shows("R190")]

FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:indexmill-Migrator"
INVOKE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from migrate import handler

class Context:
    log_stream_name = "2026/11/22/[5]abc"
    @staticmethod
    def get_remaining_time_in_millis():
        return int(sys.argv[3])

print(json.dumps(handler(json.loads(sys.argv[2]), Context())))
"""


@dataclass
class CloudFormation:
    """The address that takes the answer to each request of a stack."""

    url: str = ""
    answers: list[dict[str, Any]] = field(default_factory=list)
    content_types: list[str | None] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def request(self, kind: str, **properties: Any) -> dict[str, Any]:
        old = {"OldResourceProperties": properties.pop("old")} if "old" in properties else {}
        return {
            "RequestType": kind,
            "RequestId": "request-1",
            "ResponseURL": self.url,
            "StackId": "arn:aws:cloudformation:eu-west-1:123456789012:stack/indexmill/1",
            "LogicalResourceId": "Migration",
            "ResourceType": "AWS::CloudFormation::CustomResource",
            "ResourceProperties": {"ServiceToken": FUNCTION, "Release": f"{FUNCTION}:7", **properties},
            **old,
        }


@pytest.fixture
def cloudformation() -> Iterator[CloudFormation]:
    found = CloudFormation()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.answers.append(json.loads(body))
            found.content_types.append(self.headers.get("Content-Type"))
            found.lengths.append(len(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}/answer?Signature=x"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def empty_database(postgres_server: str) -> Iterator[str]:
    yield create_database(postgres_server, "migration_resource")
    drop_database(postgres_server, "migration_resource")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "sql", tmp_path / "package"))


def invoke(
    package: Path, event: dict[str, Any], database_url: str, left_ms: int = 60_000
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", INVOKE, str(package), json.dumps(event), str(left_ms)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "layers/indexmill/python"),
            "DATABASE_URL": database_url,
            "DATABASE_ANSWER_SECONDS": "4",
            "AWS_DEFAULT_REGION": "eu-west-1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def applied(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        if not connection.execute("SELECT to_regclass('schema_migrations')").fetchone()[0]:  # type: ignore[index]
            return []
        rows = connection.execute("SELECT name FROM schema_migrations ORDER BY name").fetchall()
    return [name for (name,) in rows]


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_it_migrates_and_answers_success(
    cloudformation: CloudFormation, package: Path, empty_database: str, kind: str
) -> None:
    done = invoke(package, cloudformation.request(kind, Parameters=["dev"]), empty_database)
    assert done.returncode == 0, done.stderr
    [answer] = cloudformation.answers
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", "indexmill-schema")
    assert answer["RequestId"] == "request-1"
    assert answer["StackId"].startswith("arn:aws:cloudformation:")
    assert answer["LogicalResourceId"] == "Migration"
    # The URL is signed for no content type.
    assert cloudformation.content_types == [""]
    assert applied(empty_database) == sorted(path.name for path in package.glob("*.sql"))


def test_the_digest_is_another_one_for_other_parameters_alone(
    cloudformation: CloudFormation, package: Path, empty_database: str
) -> None:
    for properties in (
        {"Parameters": ["INFO"]},
        {"Parameters": ["INFO"], "Release": f"{FUNCTION}:8"},
        {"Parameters": ["DEBUG"]},
    ):
        invoke(package, cloudformation.request("Update", **properties), empty_database)
    first, other_release, other_parameters = (
        answer["Data"]["ParametersDigest"] for answer in cloudformation.answers
    )
    assert first == other_release != other_parameters


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT * FROM nowhere;", 'UndefinedTable (42P01): relation "nowhere" does not exist'),
        ("SELECT 1 / 0;", "DivisionByZero (22012): division by zero"),
    ],
)
def test_a_failing_migration_is_answered_with_its_reason(
    cloudformation: CloudFormation, package: Path, empty_database: str, statement: str, reason: str
) -> None:
    (package / "9999_broken.sql").write_text(statement)
    done = invoke(package, cloudformation.request("Update"), empty_database)
    # A handler that raised would be invoked again by Lambda.
    assert done.returncode == 0, done.stderr
    [answer] = cloudformation.answers
    assert answer["Status"] == "FAILED"
    assert answer["Reason"] == f"{reason}; see the log stream 2026/11/22/[5]abc"
    assert answer["PhysicalResourceId"] == "indexmill-schema"
    assert "9999_broken.sql" not in applied(empty_database)


def test_a_changed_migration_is_named(
    cloudformation: CloudFormation, package: Path, empty_database: str
) -> None:
    invoke(package, cloudformation.request("Create"), empty_database)
    with (package / "0001_orchestrator.sql").open("a") as file:
        file.write("-- changed\n")
    invoke(package, cloudformation.request("Update"), empty_database)
    answer = cloudformation.answers[-1]
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith("0001_orchestrator.sql was changed after it was applied")


@pytest.mark.shows("S18")
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://owner:s3cret@127.0.0.1:1/none",
        "postgresql://owner:s3cret word@127.0.0.1:1/none",
        "owner:s3cret@127.0.0.1",
    ],
)
def test_the_reason_has_no_secret(cloudformation: CloudFormation, package: Path, url: str) -> None:
    done = invoke(package, cloudformation.request("Create"), url)
    [answer] = cloudformation.answers
    assert answer["Status"] == "FAILED"
    assert "s3cret" not in json.dumps(answer) + done.stdout + done.stderr


def test_a_long_reason_fits_an_answer(
    cloudformation: CloudFormation, package: Path, empty_database: str
) -> None:
    (package / "9999_long.sql").write_text(f"DO $$ BEGIN RAISE EXCEPTION '{'long ' * 2000}'; END $$;")
    invoke(package, cloudformation.request("Update"), empty_database)
    assert cloudformation.answers[0]["Status"] == "FAILED"
    assert cloudformation.lengths[0] < 4096


def test_it_answers_before_its_time_is_up_and_leaves_no_statement_behind(
    cloudformation: CloudFormation, package: Path, empty_database: str
) -> None:
    (package / "9999_endless.sql").write_text("LOCK jobs; SELECT pg_sleep(600);")
    done = invoke(package, cloudformation.request("Update"), empty_database, left_ms=17_000)
    assert done.returncode == 0, done.stderr
    [answer] = cloudformation.answers
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith("the migrations took more than 2 s")
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '1s'")
        connection.execute("SELECT count(*) FROM jobs")
        running = connection.execute("SELECT query FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%'")
        assert [query for (query,) in running if "pg_stat_activity" not in query] == []


def test_it_answers_in_time_when_the_server_falls_silent(
    cloudformation: CloudFormation, package: Path, empty_database: str
) -> None:
    """Neither the cancellation nor what the end would ask the server gets an answer."""
    (package / "9999_silent.sql").write_text("SELECT pg_sleep(30);")
    running = "SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(30)%' AND state = 'active'"
    with (
        line_to(empty_database) as line,
        psycopg.connect(empty_database, autocommit=True) as connection,
        ThreadPoolExecutor(1) as threads,
    ):
        began = time.monotonic()
        done = threads.submit(invoke, package, cloudformation.request("Update"), line.url, 25_000)
        eventually(lambda: connection.execute(running).fetchone() is not None, "the migration runs")
        line.toxic = Toxic("blackhole")
        assert done.result().returncode == 0, done.result().stderr
        assert time.monotonic() - began < 25
    [answer] = cloudformation.answers
    assert answer["Reason"].startswith("the migrations took more than 10 s")


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        ("Delete", {}),
        # CloudFormation rolls back: it asks for the release that was there before.
        ("Update", {"Release": f"{FUNCTION}:9", "old": {"Release": f"{FUNCTION}:10"}}),
    ],
)
def test_deleting_and_rolling_back_need_no_database(
    cloudformation: CloudFormation, package: Path, kind: str, properties: dict[str, Any]
) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    done = invoke(package, cloudformation.request(kind, **properties), nowhere)
    assert done.returncode == 0, done.stderr
    assert cloudformation.answers[0]["Status"] == "SUCCESS"


def test_without_an_address_to_answer_it_fails_and_lambda_repeats_it(
    package: Path, empty_database: str
) -> None:
    request = CloudFormation(url="http://127.0.0.1:1/answer").request("Create")
    assert invoke(package, request, empty_database).returncode != 0
    assert applied(empty_database)


def test_it_can_be_invoked_by_hand(package: Path, empty_database: str) -> None:
    done = invoke(package, {}, empty_database)
    assert json.loads(done.stdout)["applied"] == applied(empty_database)
    assert json.loads(invoke(package, {}, empty_database).stdout) == {"applied": []}

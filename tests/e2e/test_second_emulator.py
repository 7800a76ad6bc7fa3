"""The built template runs in an emulator that this project did not write, with that emulator's own functions.

`sam deploy` puts it into the stock MiniStack, whose Lambda, queues, event source mappings, REST API with its
authorizer, Secrets Manager, S3 and DynamoDB then do everything that AWS's do. What is not as on AWS, and
nothing else:

1. The runtime is `provided.al2023`, with a `bootstrap` in each function's package: MiniStack's own Python
   worker is no Lambda runtime. The bootstrap starts AWS's runtime client.
2. The layers are built for this machine.
3. The bootstrap puts the layers on the path: MiniStack gives a custom runtime none. They are the archives
   that were deployed, fetched from MiniStack by the API, or, while the stack is deployed, those of the build.
   There being no /opt, TokenizerFile says where it is.
4. The MaximumConcurrency of each event source mapping is set again: MiniStack keeps a number that comes
   from a parameter as text, and its poller then fails comparing a number with a text, for all queues.

Left out, because MiniStack cannot make them: the alarms and the saved queries.

Postgres, the embedding endpoint, Membership and the site are outside, as for AWS, and named by parameters.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import httpx
import psycopg
import pytest
import yaml
from localstack_client.session import Session

from local.backends.postgres import create_database, drop_database
from local.emulator import sam
from local.emulator.endpoint import EmulatorFailed
from tests.support import second_emulator
from tests.support.repository import ROOT
from tests.support.second_emulator import REGION, SecondEmulator

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.direct,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(second_emulator.missing() is not None, reason=str(second_emulator.missing())),
]


@pytest.fixture(scope="module")
def emulator(postgres_server: str) -> Iterator[SecondEmulator]:
    with tempfile.TemporaryDirectory(prefix="indexmill-emulator-", ignore_cleanup_errors=True) as folder:
        # Nothing is in it: the Migrator makes what is needed.
        url = create_database(postgres_server, "second_emulator")
        try:
            with second_emulator.deployed(Path(folder), url) as deployed:
                yield deployed
        finally:
            drop_database(postgres_server, "second_emulator")


def aws(emulator: SecondEmulator, service: str) -> Any:
    session = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION)
    return session.client(service, endpoint_url=emulator.endpoint)  # type: ignore[call-overload]


def test_a_document_goes_in_and_is_found(emulator: SecondEmulator) -> None:
    url = f"{emulator.site}/workshops/bindery.html"
    with emulator.client() as client:
        accepted = client.submit(url, "club")
        [job] = client.wait([accepted.job_id], timeout_s=60)
        assert (job.status, job.error) == ("done", None), emulator.log.read_text()[-6000:]
        assert job.chunk_count
        found = client.search("how do I cook wheat paste to mend a broken spine", "club")
    assert found.results[0].source_url == url


def test_a_document_that_is_not_there_fails_its_job(emulator: SecondEmulator) -> None:
    with emulator.client() as client:
        [job] = client.wait([client.submit(f"{emulator.site}/lost.html", "club").job_id], timeout_s=60)
    assert job.status == "failed"
    assert job.error is not None
    assert job.error.code == "http_404"


def test_the_emulators_gateway_asks_the_authorizer(emulator: SecondEmulator) -> None:
    for headers in ({}, {"X-API-Key": "key-of-nobody"}):
        assert httpx.get(f"{emulator.api_url}/orchestrator/jobs", headers=headers).status_code == 401


def test_the_database_is_known_from_a_secret_alone(emulator: SecondEmulator) -> None:
    secret = aws(emulator, "secretsmanager").get_secret_value(SecretId="indexmill-database-url")
    assert secret["SecretString"] == emulator.database_url
    functions = aws(emulator, "lambda").list_functions(MaxItems=50)["Functions"]
    variables = [each["Environment"]["Variables"] for each in functions]
    assert [each for each in variables if "DATABASE_URL" in each] == []
    assert [each for each in variables if each.get("DATABASE_URL_SECRET_ARN") == secret["ARN"]]


def test_the_migrator_made_the_schema(emulator: SecondEmulator) -> None:
    files = sorted(path.name for path in (ROOT / "sql").glob("*.sql"))
    with psycopg.connect(emulator.database_url) as connection:
        applied = connection.execute("SELECT name FROM schema_migrations ORDER BY name").fetchall()
    assert [name for (name,) in applied] == files


def test_the_event_sources_are_as_in_the_template(emulator: SecondEmulator) -> None:
    mappings = aws(emulator, "lambda").list_event_source_mappings()["EventSourceMappings"]
    settings = {
        # A dead-letter queue's name ends in random letters.
        next(part for part in each["EventSourceArn"].split("-") if part.endswith(("Queue", "Dlq"))): (
            each["BatchSize"],
            each["ScalingConfig"]["MaximumConcurrency"],
            each["FunctionResponseTypes"],
        )
        for each in mappings
    }
    reported = ["ReportBatchItemFailures"]
    assert settings == {
        "ScrapeQueue": (10, 10, reported),
        "ChunkQueue": (10, 10, reported),
        "EmbedQueue": (10, 10, reported),
        "CallbacksQueue": (10, 5, reported),
        "ScrapeDlq": (10, 2, reported),
        "ChunkDlq": (10, 2, reported),
        "EmbedDlq": (10, 2, reported),
        "CallbacksDlq": (10, 2, reported),
    }


def test_localstacks_client_sees_the_same_queues(
    emulator: SecondEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSTACK_HOST", emulator.endpoint.removeprefix("http://"))
    queues = Session(region_name=REGION).client("sqs").list_queues()["QueueUrls"]
    assert len(queues) == 8
    assert all("/indexmill-dev-" in each for each in queues)


def test_nothing_but_the_runtime_was_substituted(emulator: SecondEmulator) -> None:
    build = emulator.host.build
    built, substituted = (
        yaml.safe_load((build / name).read_text()) for name in ("template.yaml", "substituted.yaml")
    )
    assert substituted["Globals"]["Function"].pop("Runtime") == "provided.al2023"
    assert built["Globals"]["Function"].pop("Runtime").startswith("python")
    assert substituted == built


def test_a_function_was_deployed_as_it_was_built_with_a_bootstrap(emulator: SecondEmulator) -> None:
    stack = aws(emulator, "cloudformation").describe_stack_resources(StackName="indexmill-dev")
    names = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in stack["StackResources"]}
    function = aws(emulator, "lambda").get_function(FunctionName=names["ScraperWorker"])
    archive = zipfile.ZipFile(BytesIO(httpx.get(function["Code"]["Location"]).content))
    own = {path.name for path in (ROOT / "functions/scraper").glob("*.py")}
    assert {name for name in archive.namelist() if not name.endswith(".pyc")} == own | {"bootstrap"}


def live_versions(emulator: SecondEmulator) -> dict[str, str]:
    """Return the version behind each function's alias."""
    client = aws(emulator, "lambda")
    names = [each["FunctionName"] for each in client.list_functions(MaxItems=50)["Functions"]]
    return {name: client.get_alias(FunctionName=name, Name="live")["FunctionVersion"] for name in names}


def test_everything_goes_through_the_alias(emulator: SecondEmulator) -> None:
    mappings = aws(emulator, "lambda").list_event_source_mappings()["EventSourceMappings"]
    assert {each["FunctionArn"].rpartition(":")[2] for each in mappings} == {"live"}
    assert set(live_versions(emulator).values()) == {"1"}


@pytest.mark.long  # test_releases.py does this in seconds, on the local cloud
@pytest.mark.shows("R190")
def test_a_release_with_a_failing_migration_changes_no_other_function(emulator: SecondEmulator) -> None:
    """CloudFormation's own rollback is AWS's; the emulator shows what the template makes it begin with."""
    [stack] = aws(emulator, "cloudformation").describe_stacks(StackName="indexmill-dev")["Stacks"]
    parameters = {each["ParameterKey"]: each["ParameterValue"] for each in stack["Parameters"]}
    before = live_versions(emulator)
    broken = emulator.host.build / "Migrator" / "9999_broken.sql"
    changed = emulator.host.build / "ScraperWorker" / "worker.py"
    code = changed.read_text()
    try:
        broken.write_text("SELECT * FROM nowhere;")
        changed.write_text(f"{code}\n# another release\n")
        with pytest.raises(EmulatorFailed, match="nowhere"):
            sam.deploy(
                emulator.host.build / "substituted.yaml",
                "indexmill-dev",
                parameters,
                emulator.endpoint,
                REGION,
            )
    finally:
        broken.unlink()
        changed.write_text(code)
    after = live_versions(emulator)
    assert {name for name in before if before[name] != after[name]} <= {
        name for name in before if "Migrator" in name
    }
    with psycopg.connect(emulator.database_url) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM schema_migrations WHERE name LIKE '9999%'")
        assert count == 0
    with emulator.client() as client:
        [job] = client.wait([client.submit(f"{emulator.site}/handbook.html", "club").job_id], timeout_s=60)
    assert (job.status, job.error) == ("done", None), emulator.log.read_text()[-6000:]

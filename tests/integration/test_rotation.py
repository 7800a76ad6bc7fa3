"""Secrets rotate while jobs run: logins by alternating users, twice, and the key of stream tokens."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

import boto3
import psycopg
import pytest
from botocore.exceptions import ReadTimeoutError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.platform.aws import clients as clients_module
from indexmill.platform.aws import secrets as secrets_module
from indexmill.platform.aws.secrets import KEPT_S, Secret
from indexmill.platform.postgres.address import DatabaseSettings, connection_string
from indexmill.platform.security.stream_tokens import StreamGrant, sign, verify
from indexmill.platform.time import SystemClock
from local.backends.ministack import MiniStack
from local.backends.postgres import create_database
from sql.migrate import LOGINS, logins_of, migrate
from tests.support.aiohttp_server import served
from tests.support.function_env import ROOT
from tests.support.ministack import REGION
from tests.support.releases import Release
from tests.support.rotation import asking_server, rotate
from tests.support.upgrade import CALLER, WHOLE_LIFE, Site, World, by, names
from tests.twins.clock import FrozenClock

pytestmark = pytest.mark.integration

JOBS = 200
PARAMETERS = {
    "ORCHESTRATOR_DATABASE": "OrchestratorDatabaseUrlSecretArn",
    "ORCHESTRATOR_CALLER_DATABASE": "OrchestratorCallerDatabaseSecretArn",
    "EMBEDDING_DATABASE": "EmbeddingDatabaseUrlSecretArn",
    "EMBEDDING_CALLER_DATABASE": "EmbeddingCallerDatabaseSecretArn",
}
_numbers = itertools.count(1)


class Secrets:
    """Secrets Manager, with secrets of this test alone."""

    def __init__(self, endpoint: str) -> None:
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
        self.client: Any = boto3.client("secretsmanager", region_name=REGION, endpoint_url=endpoint, **keys)

    def create(self, text: str) -> str:
        """Return the ARN of a new secret."""
        name = f"rotation-{token_hex(4)}-{next(_numbers)}"
        return str(self.client.create_secret(Name=name, SecretString=text)["ARN"])

    def change(self, arn: str, text: str) -> None:
        """Make `text` the current version, and the one before it the previous one."""
        self.client.put_secret_value(SecretId=arn, SecretString=text)


@pytest.fixture
def secrets(ministack: MiniStack, monkeypatch: pytest.MonkeyPatch) -> Secrets:
    for name, value in (
        ("AWS_ENDPOINT_URL", ministack.endpoint),
        ("AWS_DEFAULT_REGION", REGION),
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
    ):
        monkeypatch.setenv(name, value)
    return Secrets(ministack.endpoint)


class Logins:
    """The four logins of the functions, in secrets as RDS keeps them: a user and a password."""

    def __init__(self, owner: str, secrets: Secrets) -> None:
        self._owner, self._secrets = owner, secrets
        self.urls = {kind: make_conninfo(owner, user=kind.lower(), password=token_hex(8)) for kind in LOGINS}
        self.arns = {kind: secrets.create(self._text(kind)) for kind in LOGINS}
        migrate(owner, logins=logins_of({kind: self._text(kind) for kind in LOGINS}, 4.0))

    def rotate(self) -> None:
        """Rotate all logins, and end the sessions so that each function opens a new one."""
        for kind, arn in self.arns.items():
            self.urls[kind] = rotate(self._owner, self.urls[kind])
            self._secrets.change(arn, self._text(kind))
        with psycopg.connect(self._owner, autocommit=True) as owner:
            owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    def users(self) -> set[str]:
        """Return the users that have a session now."""
        with psycopg.connect(self._owner, autocommit=True) as owner:
            found = owner.execute(
                "SELECT DISTINCT usename FROM pg_stat_activity"
                " WHERE datname = current_database() AND backend_type = 'client backend'"
                " AND usename <> 'indexmill'"
            )
            return {str(name) for (name,) in found.fetchall()}

    def _text(self, kind: str) -> str:
        parts = conninfo_to_dict(self.urls[kind])
        return f'{{"username": "{parts["user"]}", "password": "{parts["password"]}"}}'


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[str]:
    with asking_server(tmp_path / "postgres") as url:
        yield create_database(url, "rotating")


def authorized(release: Release, job_id: str, token: str) -> bool:
    arn = f"arn:aws:execute-api:eu-west-1:000000000000:api/dev/GET/orchestrator/jobs/{job_id}/stream"
    event = {
        "methodArn": arn,
        "pathParameters": {"job_id": job_id},
        "headers": {},
        "queryStringParameters": {"token": token},
    }
    policy: dict[str, Any] = release.invoke("StreamAuthorizer", event)
    return policy["policyDocument"]["Statement"][0]["Effect"] == "Allow"


@pytest.mark.shows("S18")
def test_logins_and_the_token_key_rotate_while_jobs_run(
    owner: str, secrets: Secrets, ministack: MiniStack, tmp_path: Path
) -> None:
    site, logins, key = Site(), Logins(owner, secrets), secrets.create("the first key, of thirty-two bytes")
    parts = conninfo_to_dict(owner)
    with served(site.app) as site.address:
        release = Release(
            "rotating",
            ROOT,
            ministack.endpoint,
            site.address,
            tmp_path / "log",
            DatabaseHost=str(parts["host"]),
            DatabasePort=str(parts["port"]),
            DatabaseName=str(parts["dbname"]),
            DatabaseSslMode="disable",
            **{PARAMETERS[kind]: arn for kind, arn in logins.arns.items()},
        )
        try:
            world = World(owner, f"rotation-{token_hex(3)}", (release, release), site)
            world.create(release)
            world.deploy(release, STREAM_TOKEN_KEY_SECRET_ARN=key)
            jobs = world.submit(release, *names(JOBS // 10))
            world.queues.drain(by(release))  # every function has read its secret
            jobs += world.submit(release, *names(JOBS // 2))
            tokens = [token(world, release, jobs[0])]
            world.queues.deliver(by(release))
            logins.rotate()
            jobs += world.submit(release, *names(JOBS // 5))
            world.queues.deliver(by(release))
            secrets.change(key, "the second key, of thirty-two bytes")
            tokens.append(token(world, release, jobs[0]))  # by a signer that has not read the new key yet
            tokens.append(signed("the second key, of thirty-two bytes", jobs[0]))
            logins.rotate()
            jobs += world.submit(release, *names(JOBS // 5))
            assert all(authorized(release, jobs[0], each) for each in tokens)
            world.queues.drain(by(release))
            used = logins.users()
        finally:
            release.close()
        assert world.statuses(*jobs) == ["done"] * JOBS
        assert all(world.life(each) == WHOLE_LIFE for each in jobs)
    # The first users have new passwords by now, which each function read when its own was refused.
    assert used == {"orchestrator_database", "orchestrator_caller_database", "embedding_database"}


def token(world: World, release: Release, job_id: str) -> str:
    return str(world.act(release, job_id, "stream-token", status=200)["token"])


def signed(key: str, job_id: str) -> str:
    expires = SystemClock().now() + timedelta(hours=1)
    return sign(key, StreamGrant(job_id, CALLER["caller_id"], expires))


def test_a_secret_is_read_again_after_five_minutes_or_when_it_is_refused(secrets: Secrets) -> None:
    arn, clock = secrets.create("first"), FrozenClock()
    secret = Secret(None, arn, clock=clock)
    assert (secret.current(), secret.known()) == ("first", ("first",))
    secrets.change(arn, "second")
    clock.tick(KEPT_S - 1)
    assert secret.current() == "first"
    clock.tick(1)
    assert (secret.current(), secret.known()) == ("second", ("second", "first"))
    secrets.change(arn, "third")
    clock.tick(2)
    assert secret.current() == "second"
    assert secret.again() == "third"
    assert (secret.current(), secret.known(again=True)) == ("third", ("third", "second"))


def test_a_value_that_was_read_just_now_is_not_read_again(secrets: Secrets) -> None:
    arn, clock = secrets.create("first"), FrozenClock()
    secret = Secret(None, arn, clock=clock)
    secret.current()
    secrets.change(arn, "second")
    assert secret.again() == "first"
    clock.tick(1)
    assert secret.again() == "second"


def test_forged_tokens_cause_few_reads(secrets: Secrets, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    fetch = secrets_module._fetch

    def counted(arn: str, stage: str) -> str | None:
        reads.append(stage)
        return fetch(arn, stage)

    monkeypatch.setattr(secrets_module, "_fetch", counted)
    arn, clock = secrets.create("the first key, of thirty-two bytes"), FrozenClock()
    keys = Secret(None, arn, clock=clock)
    forged, real = (
        signed("a guess of thirty-two bytes, all", "job"),
        signed("the second key, of thirty-two bytes", "job"),
    )
    for _ in range(100):
        assert verify(keys, forged, SystemClock().now()) is None
        clock.tick(0.3)
    # Both versions: on first use, and every ten seconds of the thirty.
    assert len(reads) == 2 * (1 + 3)
    clock.tick(10)
    secrets.change(arn, "the second key, of thirty-two bytes")
    assert verify(keys, real, SystemClock().now()) is not None


@pytest.mark.usefixtures("secrets")
def test_a_secret_that_is_not_there_is_an_outage() -> None:
    arn = f"arn:aws:secretsmanager:{REGION}:123456789012:secret:nothing-AbCdEf"
    secret = Secret(None, arn, unavailable=ErrorCode.DATABASE_UNAVAILABLE)
    with pytest.raises(TransientError) as raised:
        secret.current()
    assert raised.value.code == ErrorCode.DATABASE_UNAVAILABLE


@pytest.mark.shows("S25")
def test_a_secret_that_is_not_answered_is_an_outage_after_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket takes the connection and stays silent: without a limit the read would never end."""
    for name, value in (
        ("AWS_DEFAULT_REGION", REGION),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
    ):
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        clients_module._made.cache_clear()
        secret = Secret(None, "arn:of-a-secret", unavailable=ErrorCode.DATABASE_UNAVAILABLE)
        began = time.monotonic()
        with pytest.raises(TransientError) as raised:
            secret.current()
        took_s = time.monotonic() - began
    clients_module._made.cache_clear()
    assert raised.value.code == ErrorCode.DATABASE_UNAVAILABLE
    assert isinstance(raised.value.__cause__, ReadTimeoutError)
    # One try of 2 s; the rest is for a busy machine, and far from botocore's minute.
    assert 1.9 < took_s < 30


def test_what_a_rotation_has_not_finished_can_be_read(secrets: Secrets) -> None:
    arn = secrets.create("now")
    assert Secret(None, arn).pending() is None
    secrets.client.put_secret_value(SecretId=arn, SecretString="next", VersionStages=["AWSPENDING"])
    secret = Secret(None, arn)
    assert (secret.pending(), secret.current()) == ("next", "now")


def test_the_last_value_serves_while_secrets_manager_is_unavailable(secrets: Secrets) -> None:
    arn, clock = secrets.create("first"), FrozenClock()
    secret = Secret(None, arn, clock=clock)
    assert secret.current() == "first"
    secrets.client.delete_secret(SecretId=arn, ForceDeleteWithoutRecovery=True)
    clock.tick(KEPT_S + 1)
    assert (secret.current(), secret.again()) == ("first", "first")


def test_building_a_function_reads_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    from indexmill.orchestrator.settings import OrchestratorApiSettings
    from indexmill.orchestrator.wiring import build_api
    from tests.support.function_env import environment

    given = {
        k: v
        for k, v in environment("OrchestratorApi").items()
        if k not in {"DATABASE_URL", "STREAM_TOKEN_KEY"}
    }
    for name in ("AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, given[name])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert build_api(OrchestratorApiSettings.from_environment(given)) is not None


@pytest.mark.parametrize(
    ("secret", "settings", "expected"),
    [
        (
            '{"username": "u", "password": "p\'\\\\ x"}',
            {"database_host": "proxy", "database_name": "indexmill"},
            {"user": "u", "password": "p'\\ x", "host": "proxy", "port": "5432", "dbname": "indexmill"},
        ),
        (
            '{"username": "u", "password": "p", "host": "server", "port": 5432, "dbname": "d"}',
            {"database_host": "proxy"},
            {"user": "u", "password": "p", "host": "proxy", "port": "5432", "dbname": "d"},
        ),
        (
            "postgresql://u:p@server:6543/d",
            {"database_host": "proxy"},
            {"user": "u", "password": "p", "host": "proxy", "port": "5432", "dbname": "d"},
        ),
        (
            "postgresql://u:p@server:6543/d",
            {"database_port": 5433},
            {"user": "u", "password": "p", "host": "server", "port": "6543", "dbname": "d"},
        ),
        (
            '{"username": "u", "password": "p", "host": "server", "port": 6543, "dbname": "d"}',
            {},
            {"user": "u", "password": "p", "host": "server", "port": "6543", "dbname": "d"},
        ),
        (
            "host=a,b port=1,2 hostaddr=10.0.0.1,10.0.0.2 user=u password=p dbname=d",
            {"database_host": "direct", "database_port": 5433},
            {"user": "u", "password": "p", "host": "direct", "port": "5433", "dbname": "d"},
        ),
    ],
)
def test_a_secret_is_a_connection_string_or_a_login(
    secret: str, settings: dict[str, str], expected: dict[str, str]
) -> None:
    found = conninfo_to_dict(connection_string(secret, DatabaseSettings.model_validate(settings)))
    assert found.pop("sslmode") == "verify-full"
    assert str(found.pop("sslrootcert")).endswith("aws_roots.pem")
    assert found == expected


@pytest.mark.parametrize(
    "secret", ['{"username": "u"', "no such thing", '{"password": "hush"}', "host=h user=u"]
)
def test_a_secret_that_is_neither_is_refused_without_its_text(secret: str) -> None:
    with pytest.raises(Exception, match="database") as raised:
        connection_string(secret, DatabaseSettings())
    assert "hush" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_connection_string_keeps_its_own_tls() -> None:
    own = connection_string("postgresql://u@h/d?sslmode=require", DatabaseSettings())
    assert conninfo_to_dict(own)["sslmode"] == "require"

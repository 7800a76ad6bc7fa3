"""Time limits belong to the database and its logins, and hold for every login of a rotation."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from secrets import token_hex
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from indexmill.contracts.errors import TransientError
from indexmill.platform.postgres.database import ANSWER_S as LONGEST_ANSWER_S
from indexmill.platform.postgres.database import IDLE_S, LOCK_S, Connection, Database
from local.backends.postgres import create_database
from sql.migrate import LIMITS as LIMITS_OF_THE_DATABASE
from sql.migrate import LOGINS, Login, LoginError, limit_database, logins_of, migrate, owner_connection
from tests.support.rotation import asking_server, rotate

pytestmark = pytest.mark.integration

ANSWER_S = 4.0
LIMITS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the owner's URL of a server that asks all others for a password."""
    with asking_server(Path(tmp_path_factory.mktemp("postgres"))) as url:
        migrate(create_database(url, "migrated"))
        yield url


@pytest.fixture
def owner(server: str) -> Iterator[str]:
    name = f"limits_{token_hex(4)}"
    url = create_database(server, name, template="migrated")
    yield url
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def secrets(owner: str) -> dict[str, str]:
    """Return connection strings by kind of login, for users of which the server knows none."""
    return {
        kind: make_conninfo(owner, user=f"{kind.lower()}_{token_hex(3)}", password=token_hex(8))
        for kind in LOGINS
    }


def prepare(owner: str, secrets: dict[str, str]) -> None:
    migrate(owner, logins=logins_of(secrets, ANSWER_S))


def limits(url: str) -> dict[str, str]:
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name", (list(LIMITS),)
        )
        return dict(found.fetchall())


def expected(kind: str) -> dict[str, str]:
    statement = "4s" if LOGINS[kind][1] else "20s"
    return dict(zip(LIMITS, (statement, "5s", "30s"), strict=True))


def works(kind: str, url: str) -> None:
    """Read as the service does; raises InsufficientPrivilege."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT FROM jobs" if "ORCHESTRATOR" in kind else "SELECT FROM chunks")


@pytest.mark.shows("S18")
def test_every_login_has_every_limit_through_two_rotations(owner: str, secrets: dict[str, str]) -> None:
    prepare(owner, secrets)
    for _ in range(3):
        for kind, secret in secrets.items():
            assert limits(secret) == expected(kind), conninfo_to_dict(secret)["user"]
            works(kind, secret)
        secrets = {kind: rotate(owner, secret) for kind, secret in secrets.items()}
        prepare(owner, secrets)


def test_a_rotation_before_the_next_migration_loses_no_limit(owner: str, secrets: dict[str, str]) -> None:
    prepare(owner, secrets)
    for _ in range(2):
        secrets = {kind: rotate(owner, secret) for kind, secret in secrets.items()}
        assert {kind: limits(secret) for kind, secret in secrets.items()} == {
            kind: expected(kind) for kind in secrets
        }


def test_a_run_again_changes_no_password_that_works(owner: str, secrets: dict[str, str]) -> None:
    prepare(owner, secrets)
    with psycopg.connect(owner) as connection:
        before = connection.execute("SELECT rolname, rolpassword FROM pg_authid ORDER BY 1").fetchall()
    prepare(owner, secrets)
    with psycopg.connect(owner) as connection:
        assert (
            connection.execute("SELECT rolname, rolpassword FROM pg_authid ORDER BY 1").fetchall() == before
        )


def test_a_secret_with_a_new_password_sets_it(owner: str, secrets: dict[str, str]) -> None:
    prepare(owner, secrets)
    changed = {kind: make_conninfo(secret, password="another one") for kind, secret in secrets.items()}
    prepare(owner, changed)
    assert {kind: limits(secret) for kind, secret in changed.items()} == {
        kind: expected(kind) for kind in secrets
    }


def test_a_password_that_a_rotation_has_set_stays(owner: str, secrets: dict[str, str]) -> None:
    """A rotation of a single user changes the password first, and makes it the secret's a moment later."""
    prepare(owner, secrets)
    rotated = {kind: make_conninfo(secret, password="the next one") for kind, secret in secrets.items()}
    prepare(owner, rotated)
    migrate(owner, logins=logins_of(secrets, ANSWER_S, rotated))
    for secret in rotated.values():
        psycopg.connect(secret).close()


def test_a_pending_password_that_was_never_set_is_not_taken(owner: str, secrets: dict[str, str]) -> None:
    prepare(owner, {kind: make_conninfo(secret, password="old") for kind, secret in secrets.items()})
    pending = {kind: make_conninfo(secret, password="never set") for kind, secret in secrets.items()}
    others = {kind: make_conninfo(secret, user="someone_else") for kind, secret in secrets.items()}
    for each in (pending, others):
        migrate(owner, logins=logins_of(secrets, ANSWER_S, each))
    for secret in secrets.values():
        psycopg.connect(secret).close()


def test_connections_expect_the_limits_that_the_migrator_writes() -> None:
    assert {
        "lock_timeout": f"{LOCK_S:g}s",
        "idle_in_transaction_session_timeout": f"{IDLE_S:g}s",
        "statement_timeout": f"{LONGEST_ANSWER_S:g}s",
    } == LIMITS_OF_THE_DATABASE


def test_a_limit_that_changes_replaces_the_old_one(owner: str, secrets: dict[str, str]) -> None:
    prepare(owner, secrets)
    migrate(owner, logins=logins_of(secrets, 1.5))
    callers = [secret for kind, secret in secrets.items() if LOGINS[kind][1]]
    assert {limits(secret)["statement_timeout"] for secret in callers} == {"1500ms"}


def test_the_clone_of_nobodys_rotation_cannot_log_in(owner: str, secrets: dict[str, str]) -> None:
    prepare(owner, secrets)
    for secret in secrets.values():
        clone = f"{conninfo_to_dict(secret)['user']}_clone"
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(make_conninfo(secret, user=clone))


def test_the_owners_session_has_no_limit_of_the_database(owner: str) -> None:
    with owner_connection(owner) as connection:
        limit_database(connection)
    assert limits(owner) == {**expected("EMBEDDING_DATABASE")}
    with owner_connection(owner) as connection:
        found = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in LIMITS]
    assert found == [("0",)] * 3


def test_two_kinds_do_not_share_a_login_nor_take_the_owners(owner: str, secrets: dict[str, str]) -> None:
    first, second = list(secrets)[:2]
    with pytest.raises(LoginError):
        prepare(owner, {first: secrets[first], second: secrets[first]})
    with pytest.raises(LoginError):
        prepare(owner, {first: owner})


@pytest.mark.parametrize("kind", ["ORCHESTRATOR_CALLER_DATABASE", "ORCHESTRATOR_DATABASE"])
def test_the_server_cancels_a_statement_by_the_logins_limit(
    owner: str, secrets: dict[str, str], kind: str
) -> None:
    group = LOGINS[kind][0]
    user = conninfo_to_dict(secrets[kind])
    migrate(owner, logins=[Login(str(user["user"]), str(user["password"]), group, 0.3)])
    with closing(Database(secrets[kind], answer_s=20)) as database:
        first = database.connection()
        with pytest.raises(TransientError):
            database.read(lambda c: c.execute("SELECT pg_sleep(15)"))
        assert database.connection() is first
        assert not first.closed


def warnings(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [each for each in caplog.records if each.name.endswith("postgres.database")]


def test_a_connection_with_all_limits_says_nothing(
    owner: str, secrets: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    prepare(owner, secrets)
    caplog.set_level(logging.WARNING)
    for kind, secret in secrets.items():
        with closing(Database(secret, answer_s=ANSWER_S if LOGINS[kind][1] else 20)) as database:
            database.connection()
    assert warnings(caplog) == []


def test_a_connection_without_limits_says_which_once(owner: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with closing(Database(owner)) as database:
        for _ in range(2):
            database.connection()
            database.close()
    (warning,) = warnings(caplog)
    for name in LIMITS:
        assert f"{name} is 0 s" in warning.getMessage()
    assert warning.login == "indexmill"


def test_a_caller_with_the_workers_limit_is_named(
    owner: str, secrets: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    prepare(owner, secrets)
    caplog.set_level(logging.WARNING)
    with closing(Database(secrets["EMBEDDING_DATABASE"], answer_s=ANSWER_S)) as database:
        database.connection()
    (warning,) = warnings(caplog)
    assert "statement_timeout is 20 s" in warning.getMessage()
    assert "lock_timeout" not in warning.getMessage()


def test_no_connection_sends_startup_options(owner: str) -> None:
    def sent(connection: Connection) -> str | None:
        return connection.info.get_parameters().get("options")

    with closing(Database(owner)) as database:
        assert database.read(sent) is None

"""Prepare the database: migrations, time limits, logins; after a restore. Lambda handler and command line.

Each file `NNNN_name.sql` in this folder runs once, in order, in a transaction of its own, under an advisory
lock so that two deployments never migrate concurrently. Its digest is kept: a changed file is refused.

The service keeps running. A migration waits for a lock on a table in use for at most two seconds, since
statements behind it wait too; then it rolls back and is tried again.

No function sends its time limits: RDS Proxy and PgBouncer refuse startup options, and a SET would pin a
proxy's session. The limits are settings of the database and of the logins, written again by each run.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_LOCK = 7_204_115_260_711
_FOLDER = Path(__file__).resolve().parent
_USAGE_STATUS = 2
_LOCK_WAIT_S = 2.0
_LOCK_TRIES = 20
LIMITS: Final = {
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
    "statement_timeout": "20s",
}
"""Limits of every session of the database; a login's own setting replaces the last one."""
LOGINS: Final = {
    "ORCHESTRATOR_DATABASE": ("indexmill_orchestrator", False),
    "ORCHESTRATOR_CALLER_DATABASE": ("indexmill_orchestrator", True),
    "EMBEDDING_DATABASE": ("indexmill_embedding", False),
    "EMBEDDING_CALLER_DATABASE": ("indexmill_embedding", True),
}
"""Kinds of logins: their group, and whether a caller waits for their statements (DATABASE_ANSWER_SECONDS)."""
_SEQUENCES: Final = """
SELECT sequencename, coalesce(last_value, start_value - 1), least(%s, (max_value - min_value) / 100)
FROM pg_sequences WHERE schemaname = current_schema() ORDER BY sequencename
"""
_SEQUENCE_GAP: Final = 1_000_000
_UNSURE_GENERATIONS: Final = 1_000
"""Last numbers of the restored sequence that may be of lost transactions: Postgres logs 32 numbers ahead, and
a transaction that was open took its number earlier. Those of jobs in flight are known, and not lost.
"""
_IS_DONE: Final = """
SELECT coalesce(max(restored_at) > pg_postmaster_start_time(), false) FROM lost_generations
"""
_LOSE: Final = """
INSERT INTO lost_generations (after, upto)
SELECT known, next FROM (
    SELECT known, coalesce(lead(known) OVER (ORDER BY known) - 1, %(upto)s) AS next FROM (
        SELECT %(after)s::bigint AS known
        UNION SELECT generation FROM jobs WHERE ended_at IS NULL AND generation > %(after)s
    ) AS one
) AS gaps WHERE next > known
"""
_SEND_AGAIN: Final = """
UPDATE outbox SET sent_at = NULL, claimed_until = now() FROM jobs
WHERE jobs.id = outbox.job_id AND jobs.ended_at IS NULL AND outbox.sent_at IS NOT NULL
  AND outbox.stage = jobs.status AND outbox.attempt = jobs.attempt
"""
_MIRROR_AGAIN: Final = """
WITH every AS (UPDATE callers SET version = version + 1000000, mirrored = false)
UPDATE maintenance SET version = version + 1000000, mirrored = false
"""
"""The state table may have copies of later versions than those that were restored."""
_LOG_ON: Final = """
UPDATE audit_logged SET xact = pg_current_xact_id(), seq = 0 WHERE xact > pg_current_xact_id()
"""
"""A database that was loaded from a dump counts transactions from the start again."""
_CLONE: Final = "_clone"
"""What Secrets Manager's rotation by two alternating users appends to the name of the second one."""
_LONGEST_NAME: Final = 63


class ChangedMigrationError(Exception):
    """A migration that was already applied has another content now."""


class LoginError(Exception):
    """A login cannot be made as it is asked for."""


class Login(NamedTuple):
    """A login of functions, made and limited by each run."""

    name: str
    password: str | None
    group: str
    """Group of the migrations, which says what the login may do."""
    statement_s: float | None = None
    """Time limit of its statements in seconds; None: the database's."""
    pending: str | None = None
    """Password that a rotation of this user may have set; the secret has it a moment later."""


def owner_connection(url: str) -> psycopg.Connection[Any]:
    """Connect as the owner, not through a pooler: the limits of the database do not hold for this session."""
    connection = psycopg.connect(url, autocommit=True)
    for name in LIMITS:
        connection.execute(sql.SQL("SET {} = 0").format(sql.Identifier(name)))
    return connection


def migrate(
    url: str, folder: Path = _FOLDER, *, lock_wait_s: float = _LOCK_WAIT_S, logins: Sequence[Login] = ()
) -> list[str]:
    """Bring the database at `url` up to date and return the names of the files that were applied.

    `lock_wait_s` is how long a file waits each time for a table in use, and its pause between two times.
    Raises ChangedMigrationError, LoginError, and psycopg's errors for a migration that fails (it is rolled
    back whole).
    """
    # The lock ends with the connection: a server that no longer answers is asked nothing at the end.
    with closing(owner_connection(url)) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        applied = _apply_all(connection, folder, lock_wait_s)
        limit_database(connection)
        make_logins(connection, url, logins)
        return applied


def limit_database(connection: psycopg.Connection[Any]) -> None:
    """Write the time limits of the database's sessions; they hold for those that are opened from then on."""
    _set_limits(connection, None, LIMITS)


def make_logins(connection: psycopg.Connection[Any], url: str, logins: Iterable[Login]) -> None:
    """Make each login and the second user of its rotation, members of the group and with the same limits.

    A member does not inherit the settings of its group, nor a rotation's clone those of the first user: each
    login has its own. The password is set only where neither it nor the pending one logs in: the secret's is
    the valid one, but for a rotation of a single user that is between its steps.
    Raises LoginError for a login that is the owner's or of another kind too.
    """
    seen = {connection.info.user: "the owner of the tables"}
    for login in logins:
        base = login.name.removesuffix(_CLONE)
        if base in seen:
            raise LoginError(f"the login {login.name} is also that of {seen[base]}: each needs its own")
        seen[base] = login.group
        limits = (
            {} if login.statement_s is None else {"statement_timeout": f"{login.statement_s * 1000:.0f}ms"}
        )
        for name in (base, base + _CLONE):
            if len(name.encode()) <= _LONGEST_NAME:
                _make_role(connection, name, login.group)
                _set_limits(connection, name, limits)
        valid = filter(None, (login.password, login.pending))
        if login.password is not None and not any(_logs_in(url, login.name, each) for each in valid):
            _set_password(connection, login.name, login.password)


def _make_role(connection: psycopg.Connection[Any], name: str, group: str) -> None:
    role, of_group = sql.Identifier(name), sql.Identifier(group)
    if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (name,)).fetchall():
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
    (member,) = connection.execute("SELECT pg_has_role(%s, %s, 'MEMBER')", (name, group)).fetchall()[0]
    if not member:
        connection.execute(sql.SQL("GRANT {} TO {}").format(of_group, role))


def _set_limits(connection: psycopg.Connection[Any], role: str | None, wanted: Mapping[str, str]) -> None:
    """Write the settings of the database, or of a role in it, as far as they are different."""
    (held,) = connection.execute(
        "SELECT ARRAY(SELECT unnest(setconfig) FROM pg_db_role_setting"
        " WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND setrole = coalesce((SELECT oid FROM pg_roles WHERE rolname = %s), 0))",
        (role,),
    ).fetchall()[0]
    known = dict(each.split("=", 1) for each in held)
    database = sql.Identifier(connection.info.dbname)
    whose = sql.SQL("DATABASE {}").format(database)
    if role is not None:
        whose = sql.SQL("ROLE {} IN DATABASE {}").format(sql.Identifier(role), database)
    for name in LIMITS:
        if known.get(name) == wanted.get(name):
            continue
        change = sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(wanted.get(name)))
        if name not in wanted:
            change = sql.SQL("RESET {}").format(sql.Identifier(name))
        connection.execute(sql.SQL("ALTER {} {}").format(whose, change))


def _logs_in(url: str, name: str, password: str) -> bool:
    try:
        psycopg.connect(make_conninfo(url, user=name, password=password)).close()
    except psycopg.OperationalError:
        return False
    return True


def _set_password(connection: psycopg.Connection[Any], name: str, password: str) -> None:
    # As a verifier, so that the server's log of statements has no password.
    verifier = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
    statement = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(name), sql.Literal(verifier))
    connection.execute(statement)


def _apply_all(connection: psycopg.Connection[Any], folder: Path, lock_wait_s: float) -> list[str]:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations ("
        " name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())"
    )
    known = dict(connection.execute("SELECT name, sha256 FROM schema_migrations").fetchall())
    applied = []
    for file in sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql")):
        text = file.read_bytes()
        digest = hashlib.sha256(text).hexdigest()
        if file.name in known:
            if known[file.name] != digest:
                raise ChangedMigrationError(
                    f"{file.name} was changed after it was applied; add a new file instead"
                )
            continue
        _apply(connection, text, (file.name, digest), lock_wait_s)
        applied.append(file.name)
    return applied


def _apply(
    connection: psycopg.Connection[Any], text: bytes, name_and_digest: tuple[str, str], lock_wait_s: float
) -> None:
    for last in (*[False] * (_LOCK_TRIES - 1), True):
        try:
            with connection.transaction():
                connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{lock_wait_s}s",))
                connection.execute(text)
                connection.execute(
                    "INSERT INTO schema_migrations (name, sha256) VALUES (%s, %s)", name_and_digest
                )
        except psycopg.errors.LockNotAvailable:
            if last:
                raise
            connection.execute("SELECT pg_sleep(%s)", (lock_wait_s,))
        else:
            return


def after_restore(url: str) -> dict[str, int]:
    """Make the restored database at `url` safe for the messages of the one that it replaces.

    What was committed after the point in time of the restore is lost, but its messages are still in the
    queues, and execution environments still hold numbers that they took. So each sequence continues a million
    further (one with a small range: a hundredth of it), and generations that may have been issued since are
    recorded as lost: publishing refuses them. The messages that jobs in flight wait for are sent again, since
    their progress after that time is lost too: a result of it that is still in a queue would hide from the
    sweeper's count that their message is gone. A point before a migration is migrated first; the rest is one
    transaction. A second run on a server that was not started since changes nothing: what was issued since is
    not lost. Returns the number after which each sequence continues. Raises psycopg's errors.
    """
    migrate(url)
    moved = {}
    with owner_connection(url) as connection, connection.transaction():
        sequences = connection.execute(_SEQUENCES, (_SEQUENCE_GAP,)).fetchall()
        (is_done,) = connection.execute(_IS_DONE).fetchall()[0]
        if is_done:
            return {name: last for name, last, _ in sequences}
        for name, last, gap in sequences:
            moved[name] = last + gap
            connection.execute(
                "SELECT setval(%s::regclass, %s)", (sql.Identifier(name).as_string(), moved[name])
            )
            if name == "generation_seq":
                after = max(0, last - _UNSURE_GENERATIONS)
                connection.execute(_LOSE, {"after": after, "upto": moved[name]})
        connection.execute(_SEND_AGAIN)
        connection.execute(_MIRROR_AGAIN)
        connection.execute(_LOG_ON)
    return moved


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Migrate and make the functions' logins, for CloudFormation or called directly.

    `{"after_restore": HOST}` makes the database that was restored at HOST safe instead, and
    `{"callers": [ACT, …]}` does one act of callers.py.
    """
    if host := event.get("after_restore"):
        return {"continues_after": after_restore(make_conninfo(_configured_url(), host=str(host)))}
    # They are beside this module in the function's folder, where none is in a package.
    if act := event.get("callers"):
        return {"rows": import_module("callers").act(_configured_url(), act[0], act[1:])}
    custom_resource = import_module("custom_resource")
    if custom_resource.is_request(event):
        answer: dict[str, Any] = custom_resource.respond(
            event, context, _migrate_configured, (ChangedMigrationError, LoginError)
        )
        return answer
    return {"applied": _migrate_configured()}


def _configured_url() -> str:
    """Return the owner's connection string."""
    # The command line needs no library of ours.
    from indexmill.platform.postgres.address import configured_url

    return configured_url()


def _migrate_configured() -> list[str]:
    """Migrate the database that the variables name; they name the logins' secrets too."""
    from indexmill.platform.aws.secrets import Secret

    url = _configured_url()
    arns = {kind: os.environ.get(f"{kind}_SECRET_ARN") for kind in LOGINS}
    secrets = {kind: Secret(None, arn) for kind, arn in arns.items() if arn}
    logins = logins_of(
        {kind: secret.current() for kind, secret in secrets.items()},
        float(os.environ["DATABASE_ANSWER_SECONDS"]),
        {kind: pending for kind, secret in secrets.items() if (pending := secret.pending())},
    )
    return migrate(url, logins=logins)


def logins_of(
    secrets: Mapping[str, str], answer_s: float, pending: Mapping[str, str] | None = None
) -> list[Login]:
    """Return the logins of secrets by kind, a key of LOGINS: connection strings, or RDS' JSON.

    `pending` are those that a rotation has not made valid yet. Raises LoginError for one without a user.
    """
    made = []
    for kind, secret in secrets.items():
        group, answers = LOGINS[kind]
        user, password = _user_of(kind, secret)
        next_user, next_password = _user_of(kind, (pending or {}).get(kind, secret))
        own = next_password if next_user == user and next_password != password else None
        made.append(Login(user, password, group, answer_s if answers else None, own))
    return made


def _user_of(kind: str, secret: str) -> tuple[str, str | None]:
    """Return a secret's user and password."""
    try:
        found: Mapping[str, Any] = (
            json.loads(secret) if secret.lstrip().startswith("{") else conninfo_to_dict(secret)
        )
    except (ValueError, psycopg.ProgrammingError):
        # Without the error's text, which has the secret in it.
        raise LoginError(f"the secret of {kind} is neither a connection string nor JSON") from None
    user = found.get("username") or found.get("user")
    if not user:
        raise LoginError(f"the secret of {kind} names no user")
    return str(user), found.get("password")


def main() -> int:
    """`python sql/migrate.py [--after-restore] DATABASE_URL`: print what was done."""
    options, url = sys.argv[1:-1], sys.argv[-1]
    if not sys.argv[1:] or options not in ([], ["--after-restore"]) or url.startswith("-"):
        sys.stderr.write("usage: python sql/migrate.py [--after-restore] DATABASE_URL\n")
        return _USAGE_STATUS
    if options:
        done = [f"{name} continues after {last}" for name, last in after_restore(url).items()]
    else:
        done = migrate(url) or ["nothing to do"]
    sys.stdout.writelines(f"{line}\n" for line in done)
    return 0


if __name__ == "__main__":
    sys.exit(main())

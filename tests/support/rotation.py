"""A Postgres that asks for passwords, and the rotation of its logins as Secrets Manager does it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from local.backends.postgres import EmbeddedPostgres

_ACCESS = "local all all trust\nhost all indexmill all trust\nhost all all all scram-sha-256\n"


@contextlib.contextmanager
def asking_server(folder: Path) -> Iterator[str]:
    """Yield the owner's URL of a server that asks all others for a password."""
    postgres = EmbeddedPostgres(folder)
    url = postgres.start()
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            (file,) = connection.execute("SELECT current_setting('hba_file')").fetchone() or ("",)
            Path(file).write_text(_ACCESS)
            connection.execute("SELECT pg_reload_conf()")
        yield url
    finally:
        postgres.stop()
        postgres.delete()


def rotate(owner: str, secret: str) -> str:
    """Rotate by alternating users; return the new connection string.

    The other user is made as a member of the current one when there is none, else it gets a new password.
    """
    current, password = str(conninfo_to_dict(secret)["user"]), token_hex(8)
    other = current.removesuffix("_clone") if current.endswith("_clone") else f"{current}_clone"
    name, member = sql.Identifier(other), sql.Identifier(current)
    with psycopg.connect(owner, autocommit=True) as master:
        if not master.execute("SELECT FROM pg_roles WHERE rolname = %s", (other,)).fetchall():
            made = sql.SQL("CREATE ROLE {} WITH LOGIN PASSWORD {}").format(name, sql.Literal(password))
            master.execute(made)
            master.execute(sql.SQL("GRANT {} TO {}").format(member, name))
        else:
            changed = sql.SQL("ALTER USER {} WITH PASSWORD {}").format(name, sql.Literal(password))
            master.execute(changed)
    return make_conninfo(secret, user=other, password=password)

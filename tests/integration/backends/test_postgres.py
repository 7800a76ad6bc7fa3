from __future__ import annotations

import os
import signal
import socket
import stat
import tempfile
import threading
from pathlib import Path

import psycopg
import pytest

from local.backends.postgres import EmbeddedPostgres, create_database, drop_database
from local.backends.postgres_home import BIN_ENV, PostgresUnavailable
from local.backends.process import free_port
from tests.integration.backends.conftest import StartServer

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another account")


def values(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def databases(url: str) -> set[object]:
    return {name for (name,) in values(url, "SELECT datname FROM pg_database")}


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_started_server_is_postgres_18_with_vectors_on_loopback_only(postgres: EmbeddedPostgres) -> None:
    url = create_database(postgres.url, "vectors")
    ((version,),) = values(url, "SHOW server_version_num")
    assert int(str(version)) // 10_000 == 18
    values(url, "CREATE EXTENSION vector")
    assert values(url, "SELECT '[3,4]'::vector <-> '[0,0]'::vector") == [(5.0,)]
    settings = "SELECT current_setting('listen_addresses'), current_setting('unix_socket_directories')"
    assert values(url, settings) == [("127.0.0.1", "")]
    drop_database(postgres.url, "vectors")


def test_the_text_is_utf8_and_the_time_utc(postgres: EmbeddedPostgres) -> None:
    assert values(postgres.url, "SHOW server_encoding") == [("UTF8",)]
    assert values(postgres.url, "SHOW timezone") == [("UTC",)]
    assert values(postgres.url, "SELECT upper('grün')") == [("GRÜN",)]


def test_the_server_does_not_run_as_root(postgres: EmbeddedPostgres) -> None:
    assert postgres.data_dir.stat().st_uid != 0
    assert stat.S_IMODE(postgres.data_dir.stat().st_mode) == 0o700


def test_starting_a_running_server_changes_nothing(postgres: EmbeddedPostgres) -> None:
    pid, url = postgres.pid, postgres.url
    assert postgres.start() == url
    assert postgres.pid == pid


def test_a_database_may_be_a_copy_and_is_dropped_with_its_sessions(postgres: EmbeddedPostgres) -> None:
    first = create_database(postgres.url, "odd name/1")
    values(first, "CREATE TABLE t AS SELECT 7 AS n")
    copy = create_database(postgres.url, "copy", template="odd name/1")
    assert values(copy, "SELECT n FROM t") == [(7,)]
    values(copy, "INSERT INTO t VALUES (8)")
    assert values(first, "SELECT n FROM t") == [(7,)]
    with psycopg.connect(copy) as open_session:
        drop_database(postgres.url, "copy")
        with pytest.raises(psycopg.OperationalError):
            open_session.execute("SELECT 1")
    drop_database(postgres.url, "odd name/1")
    assert not {"copy", "odd name/1"} & databases(postgres.url)
    drop_database(postgres.url, "copy")


def test_a_database_that_exists_is_not_made_again(postgres: EmbeddedPostgres) -> None:
    create_database(postgres.url, "once")
    with pytest.raises(psycopg.errors.DuplicateDatabase):
        create_database(postgres.url, "once")
    drop_database(postgres.url, "once")


def test_a_restarted_server_has_its_port_and_its_data(make_server: StartServer) -> None:
    exits: list[int] = []
    port = free_port()
    server = make_server(port=port, settings={"work_mem": "7MB"}, on_exit=exits.append)
    url = server.start()
    assert f"@127.0.0.1:{port}/" in url
    pid = server.pid
    values(url, "CREATE TABLE t AS SELECT 7 AS n")
    server.stop()
    assert server.pid is None
    assert pid is not None
    assert gone(pid)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    assert server.start() == url
    assert values(url, "SELECT n FROM t") == [(7,)]
    assert values(url, "SHOW work_mem") == [("7MB",)]
    server.stop()
    server.stop()
    assert exits == [], "a server that was stopped did not crash"


def test_a_stop_does_not_wait_for_open_sessions(postgres: EmbeddedPostgres) -> None:
    session = psycopg.connect(postgres.url)
    try:
        session.execute("CREATE TABLE unfinished (n int)")
        postgres.stop(timeout_s=10)
        assert postgres.pid is None
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")
    finally:
        session.close()
    assert values(postgres.start(), "SELECT to_regclass('unfinished')") == [(None,)], "it is rolled back"


def test_a_crash_is_reported_and_the_data_survives_it(make_server: StartServer) -> None:
    reported, statuses = threading.Event(), []

    def crashed(status: int) -> None:
        statuses.append(status)
        reported.set()

    server = make_server(on_exit=crashed)
    url = server.start()
    values(url, "CREATE TABLE t AS SELECT 7 AS n")
    values(url, "CHECKPOINT")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert reported.wait(10)
    assert statuses == [-signal.SIGKILL]
    assert server.pid is None
    assert server.start() == url
    assert values(url, "SELECT n FROM t") == [(7,)]


def test_a_server_left_running_on_the_same_data_is_replaced(make_server: StartServer, tmp_path: Path) -> None:
    first = make_server(tmp_path / "state")
    values(first.start(), "CREATE TABLE t AS SELECT 7 AS n")
    left = first.pid
    assert left is not None
    second = make_server(tmp_path / "state")
    url = second.start()
    assert second.data_dir == first.data_dir
    assert second.pid not in (None, left)
    assert first.pid is None
    assert gone(left)
    assert values(url, "SELECT n FROM t") == [(7,)]


def test_a_stale_pid_file_that_names_another_process_is_ignored(postgres: EmbeddedPostgres) -> None:
    postgres.stop()
    stale = postgres.data_dir / "postmaster.pid"
    stale.write_text(f"{os.getpid()}\n{postgres.data_dir}\n")  # with a signal, this process would end
    postgres.start()
    assert stale.read_text().split()[0] == str(postgres.pid)


def test_deleting_stops_the_server_and_leaves_no_data(make_server: StartServer, tmp_path: Path) -> None:
    keep = tmp_path / "state" / "keep.txt"
    server = make_server()
    url = server.start()
    keep.write_text("mine")
    values(url, "CREATE TABLE t AS SELECT 7 AS n")
    pid = server.pid
    server.delete()
    assert pid is not None
    assert gone(pid)
    assert not server.data_dir.exists()
    assert keep.read_text() == "mine"
    assert values(server.start(), "SELECT to_regclass('t')") == [(None,)], "a new start begins empty"


def test_deleting_what_was_never_started_deletes_nothing(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    mine = (tmp_path / "keep.txt", server.data_dir / "keep.txt")
    for file in mine:
        file.write_text("mine")
    server.delete()
    assert [file.read_text() for file in mine] == ["mine"] * 2
    mine[1].unlink()
    server.data_dir.rmdir()


@AS_ROOT
def test_data_goes_where_the_account_can_go_when_the_state_folder_is_closed_to_it(
    make_server: StartServer, tmp_path: Path
) -> None:
    state = tmp_path / "closed"
    state.mkdir(mode=0o700)
    server = make_server(state)
    assert not server.data_dir.is_relative_to(state)
    assert (state / "postgres.location").read_text().strip() == str(server.data_dir)
    values(server.start(), "CREATE TABLE t AS SELECT 7 AS n")
    server.stop()
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    again = make_server(state)
    assert again.data_dir == server.data_dir
    assert values(again.start(), "SELECT n FROM t") == [(7,)]


@AS_ROOT
@pytest.mark.parametrize("note", ["", ".", "/", "/nowhere/at/all"])
def test_a_note_that_names_no_folder_of_the_account_is_not_believed(tmp_path: Path, note: str) -> None:
    (tmp_path / "postgres.location").write_text(note)
    made = EmbeddedPostgres(tmp_path).data_dir
    assert made.name.startswith("indexmill-postgres-")
    assert (tmp_path / "postgres.location").read_text().strip() == str(made)
    made.rmdir()


def test_data_stays_in_a_state_folder_that_the_account_can_enter(make_server: StartServer) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = make_server(Path(folder))
        assert server.data_dir == Path(folder).resolve() / "postgres"
        server.start()
        assert (server.data_dir / "PG_VERSION").read_text().strip() == "18"
        server.delete()


def test_a_server_that_cannot_start_shows_why(make_server: StartServer) -> None:
    server = make_server(settings={"shared_buffers": "nonsense"})
    with pytest.raises(PostgresUnavailable, match="shared_buffers"):
        server.start()
    assert server.pid is None


def test_a_given_port_in_use_is_reported(make_server: StartServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = make_server(port=taken.getsockname()[1])
        with pytest.raises(PostgresUnavailable, match="could not bind"):
            server.start()
    assert server.pid is None


def test_programs_may_be_named_and_must_then_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PostgresUnavailable, match="no postgres program"):
        EmbeddedPostgres(tmp_path, bin_dir=tmp_path)
    monkeypatch.setenv(BIN_ENV, str(tmp_path))
    with pytest.raises(PostgresUnavailable, match="no postgres program"):
        EmbeddedPostgres(tmp_path)

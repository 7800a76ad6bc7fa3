"""Run a command in a Debian trixie of its own, whose Python 3.13 is that of the deployed functions.

The base is unpacked (not installed) into `build/trixie` from packages of this machine's own apt sources, with
the suite replaced. The command runs there by chroot, in a copy of this working tree, with mounts that end
with it. Needs root and Debian's apt; prints the reason and succeeds where there is none.

    python -m tools.trixie COMMAND…
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BASE: Final = ROOT / "build" / "trixie"
SUITE: Final = "trixie"
_WORK: Final = "work"
_PACKAGES: Final = (
    *("base-files", "bash", "coreutils", "dash", "diffutils", "findutils", "gawk", "git", "grep", "gzip"),
    *("hostname", "libc-bin", "libstdc++6", "make", "procps", "python3.13-venv", "sed", "tar", "tzdata"),
)
_COPIED: Final = ("passwd", "group", "hosts", "resolv.conf", "pip.conf", "nsswitch.conf")
"""Of this machine's /etc: names, accounts, how packages are found."""
_MOUNTED: Final = (
    "/dev",
    "/proc",
    "/sys",
    "/etc/ssl",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
)


class Impossible(Exception):
    """This machine cannot make the base; the text says why."""


def sources(folder: Path, codename: str) -> str:
    """Return the deb822 and one-line entries below `folder`, an /etc/apt, with the suite replaced.

    Raises Impossible when none is of the suite `codename`.
    """
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    found = []
    for file in files:
        text = file.read_text() if file.is_file() and file.suffix in (".list", ".sources") else ""
        stanzas = re.split(r"\n\s*\n", text) if file.suffix == ".sources" else text.splitlines()
        suite = re.compile(rf"\b{re.escape(codename)}\b")
        found += [(file.suffix, suite.sub(SUITE, each)) for each in stanzas if suite.search(_entry(each))]
    if not found:
        raise Impossible(f"no apt source of this machine is Debian's {codename}")
    kinds = {kind for kind, _ in found}
    if len(kinds) > 1:
        found = [(kind, each) for kind, each in found if kind == ".sources"]
    return "\n\n".join(each for _, each in found) + "\n"


def _entry(text: str) -> str:
    """Return an entry without its comments."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def codename() -> str:
    """Return the codename of this machine's Debian. Raises Impossible."""
    release = Path("/etc/os-release")
    fields = (
        dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', release.read_text(), re.MULTILINE))
        if release.exists()
        else {}
    )
    if os.geteuid() != 0:
        raise Impossible("only root may chroot")
    if fields.get("ID") != "debian" or shutil.which("apt-get") is None:
        raise Impossible("this machine is no Debian")
    return str(fields["VERSION_CODENAME"])


def make_base(release: str) -> None:
    """Unpack the packages into BASE, unless that was done before."""
    ready = BASE / ".ready"
    wanted = " ".join(_PACKAGES)
    if ready.exists() and ready.read_text() == wanted:
        return
    shutil.rmtree(BASE, ignore_errors=True)
    apt = BASE / "apt"
    for name in ("etc", "lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    text = sources(Path("/etc/apt"), release)
    (apt / "etc" / f"own.{'sources' if 'URIs:' in text else 'list'}").write_text(text)
    (apt / "status").touch()
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": apt / "etc",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    _run("apt-get", "-qq", *given, "update")
    _run("apt-get", "-qq", *given, "install", "--download-only", "--no-install-recommends", *_PACKAGES)
    archives = sorted(
        (apt / "cache" / "archives").glob("*.deb"), key=lambda file: file.name[:10] != "base-files"
    )
    for archive in archives:  # base-files first: it has the links of /bin and /lib
        _run("dpkg-deb", "--extract", str(archive), str(BASE))
    shutil.rmtree(apt)
    (BASE / "bin/sh").unlink(missing_ok=True)
    (BASE / "bin/sh").symlink_to("dash")
    (BASE / "usr/bin/awk").symlink_to("gawk")
    (BASE / "usr/bin/python3").symlink_to("python3.13")
    ready.write_text(wanted)


def copy_tree() -> None:
    """Copy this working tree with its history, as git sees it; environments of the last run stay."""
    work = BASE / _WORK
    work.mkdir(exist_ok=True)
    for old in work.iterdir():
        if not old.name.startswith(".venv"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    listed = ("git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, work / name)
    common = ("git", "-C", str(ROOT), "rev-parse", "--path-format=absolute", "--git-common-dir")
    history = subprocess.run(common, capture_output=True, text=True, check=True).stdout.strip()
    shutil.copytree(history, work / ".git", symlinks=True)


def run_inside(command: list[str]) -> int:
    """Run `command` in the copy and return its exit status."""
    for here in (Path("/etc", name) for name in _COPIED):
        if here.exists():
            shutil.copy(here, BASE / "etc")
    cache = Path.home() / ".cache"
    cache.mkdir(exist_ok=True)
    wheels = [each for each in os.environ.get("PIP_FIND_LINKS", "").split() if Path(each).is_dir()]
    script = ["set -e"]
    for mounted in [*_MOUNTED, str(cache), *wheels]:
        if Path(mounted).exists():
            (BASE / mounted.lstrip("/")).mkdir(parents=True, exist_ok=True)
            script.append(f"mount --rbind {shlex.quote(mounted)} {shlex.quote(str(BASE) + mounted)}")
    (BASE / "tmp").mkdir(exist_ok=True)
    (BASE / "tmp").chmod(0o1777)
    script.append(f"cd {shlex.quote(str(BASE))}")
    inside = f"cd /{_WORK} && exec {shlex.join(command)}"
    script.append(f"exec chroot . /bin/sh -c {shlex.quote(inside)}")
    environment = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "VIRTUAL_ENV")}
    environment["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    unshared = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(script)]
    return subprocess.run(unshared, env=environment, check=False).returncode


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")


def main(command: list[str]) -> int:
    """Return the command's exit status; 0 where there can be no base."""
    try:
        make_base(codename())
    except Impossible as error:
        print(f"skipped: {error}")
        return 0
    copy_tree()
    return run_inside(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""An emulator that this project did not write; what of ours is no function stays outside of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from indexmill.client import Client
from local.backends.model_files import DIMENSIONS, MODEL_ID
from local.backends.process import PARENT_ENV, free_port, stand_in_argv
from local.emulator.host_runtime import HostRuntime
from local.emulator.sam import SAM
from tests.support.repository import ROOT
from tests.support.stack import eventually

MINISTACK: Final = ROOT / ".venv-ministack" / "bin" / "ministack"
REGION: Final = "eu-west-1"
KEY: Final = "key-of-ann"
_START_S: Final = 20.0
_DEPLOY_S: Final = 220.0


@dataclass(frozen=True, slots=True)
class SecondEmulator:
    """A deployed stack."""

    api_url: str
    endpoint: str
    site: str
    database_url: str
    host: HostRuntime
    log: Path
    """What the emulator and the functions' starts say."""

    def client(self) -> Client:
        """Return a client of the one caller there is."""
        return Client(self.api_url, KEY)


def missing() -> str | None:
    """Return what has to be installed first, if anything; with CI set all is, so nothing is skipped."""
    if SAM.exists() or os.environ.get("CI"):
        return None
    return f"{SAM.relative_to(ROOT)} is not installed; run: make setup-all"


@contextlib.contextmanager
def process(argv: Sequence[str], env: Mapping[str, str], log: Path, ready: str) -> Iterator[None]:
    """Run a process with exactly `env` until the block ends; it is ready when `ready` answers."""
    with log.open("ab") as output:
        running = subprocess.Popen(
            argv,
            env=env,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def serves() -> bool:
        assert running.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(ready, timeout=5.0).is_success
        return False

    try:
        eventually(serves, f"{ready} answers", _START_S)
        yield
    finally:
        # Its group, because the functions are in there; there is nothing to be kept, so at once.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@contextlib.contextmanager
def stand_in(name: str, folder: Path, *options: str) -> Iterator[str]:
    """Run one of our stand-ins; its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {**os.environ, PARENT_ENV: "1"}
    with process(stand_in_argv(name, port, *options), env, folder / f"{name}.log", f"{url}/health"):
        yield url


@contextlib.contextmanager
def ministack(folder: Path) -> Iterator[str]:
    """Run the stock `ministack` command, nothing of ours in it; its endpoint.

    Its whole environment is what the functions inherit, so the endpoint is in there too: else they would
    talk to AWS itself.
    """
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    temporary = folder / "tmp"
    temporary.mkdir()
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "TMPDIR": str(temporary),
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "MINISTACK_HOST": "127.0.0.1",
        "MINISTACK_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": "INFO",
        "DOCKER_HOST": f"unix://{temporary}/no-docker.sock",
    }
    with process([str(MINISTACK)], env, folder / "ministack.log", f"{endpoint}/_ministack/health"):
        yield endpoint


@contextlib.contextmanager
def deployed(folder: Path, database_url: str) -> Iterator[SecondEmulator]:
    """Run the emulator and the stand-ins on `folder`, and deploy by the command that a person uses."""
    keys = folder / "keys.json"
    keys.write_text(json.dumps({KEY: {"caller_id": "ann"}}))
    with contextlib.ExitStack() as running:
        endpoint = running.enter_context(ministack(folder))
        membership = running.enter_context(stand_in("membership", folder, "--keys", str(keys)))
        embeddings = running.enter_context(stand_in("embeddings", folder))
        site = running.enter_context(stand_in("site", folder))
        parameters = {
            "MembershipUrl": membership,
            "EmbeddingBaseUrl": f"{embeddings}/v1",
            "EmbeddingModel": MODEL_ID,
            "EmbeddingDimension": str(DIMENSIONS),
            "AllowedPrivateHosts": site.removeprefix("http://"),
            # It knows no alarm over more than one metric.
            "CreateAlarms": "false",
            "InternalKeyHashes": hashlib.sha256(b"key-of-ops").hexdigest()[:16],
        }
        # A folder with a space in its name: nothing on the way may split it.
        work = folder / "an emulator"
        command = [
            *(sys.executable, "-m", "local.emulator.deploy", "--endpoint", endpoint, "--region", REGION),
            *("--database-url", database_url, "--folder", str(work)),
            *(part for name, value in parameters.items() for part in ("--parameter", f"{name}={value}")),
        ]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=_DEPLOY_S, check=False
        )
        log = folder / "ministack.log"
        assert done.returncode == 0, f"{done.stderr}\n{log.read_text()[-6000:]}"
        api_url = done.stdout.strip()
        yield SecondEmulator(api_url, endpoint, site, database_url, HostRuntime(work), log)

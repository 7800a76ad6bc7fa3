"""MiniStack: SQS, S3, DynamoDB, secrets, parameters and alarms on a loopback port, as one child process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from pathlib import Path

from local.backends.ministack_resources import Resources, create_resources

__all__ = ["MiniStack", "MiniStackFailed", "Resources", "create_resources"]

_SERVER = Path(__file__).with_name("ministack_server.py")
START_LIMIT_S = 30.0
STOP_LIMIT_S = 5.0


class MiniStackFailed(RuntimeError):
    """Raised when MiniStack ended or did not answer while starting; the message has the end of its log."""


class MiniStack:
    """One MiniStack process: `state_dir` holds its log, its temporary files and, with `persist`, its state.

    `python` is the interpreter of the environment that MiniStack is installed in. Credentials are not
    checked; every key acts in `account_id`, except a key of twelve digits, which names an account itself.
    `port` 0 lets the system choose at the first start; later starts keep it.
    """

    def __init__(
        self,
        state_dir: Path,
        python: Path,
        *,
        account_id: str,
        region: str,
        persist: bool = False,
        port: int = 0,
    ) -> None:
        self._dir = state_dir
        self._python = python
        self._account_id = account_id
        self._region = region
        self._persist = persist
        self._port = port
        self._process: asyncio.subprocess.Process | None = None
        self.log_file = state_dir / "ministack.log"
        self.endpoint = ""
        """URL of the last start."""
        self.prompt_long_polls = False
        """Whether a waiting receive is answered at once when a message arrives; known after `start`."""

    @property
    def pid(self) -> int | None:
        """Process id while it runs, else None."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> str:
        """Start the process and return its endpoint URL, always the same; MiniStackFailed when it fails."""
        temporary = self._dir / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        ready_file = self._dir / "ministack.json"
        ready_file.unlink(missing_ok=True)
        with self.log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                self._python,
                "-Iu",  # isolated: else the server's own folder would hide the package of the same name
                _SERVER,
                ready_file,
                str(self._port),
                stdin=asyncio.subprocess.PIPE,  # its end of file ends the child with this process
                stdout=log,
                stderr=log,
                env=self._environment(temporary),
                cwd=self._dir,
                start_new_session=True,
            )
        try:
            ready = await self._ready(ready_file)
        except BaseException:
            await self.stop()
            raise
        self.prompt_long_polls = bool(ready["prompt_long_polls"])
        self._port = int(ready["port"])
        self.endpoint = f"http://127.0.0.1:{self._port}"
        return self.endpoint

    def save(self) -> None:
        """Write the state to disk, so that a killed process finds it at the next start.

        Buckets are always on disk; without the CloudFormation stack that they belong to, creating that stack
        again fails.
        """
        if self._persist and self._process is not None and self.pid is not None:
            self._process.send_signal(signal.SIGUSR1)

    async def stop(self) -> None:
        """End the process and its group: SIGTERM first, SIGKILL after five seconds. Idempotent."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_LIMIT_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if process.stdin is not None:
            process.stdin.close()

    async def wait(self) -> int:
        """Wait until the process ends and return its exit code."""
        if self._process is None:
            raise RuntimeError("MiniStack was not started")
        return await self._process.wait()

    async def _ready(self, ready_file: Path) -> dict[str, int | bool]:
        deadline = time.monotonic() + START_LIMIT_S
        while not ready_file.exists():
            if self.pid is None or time.monotonic() > deadline:
                tail = self.log_file.read_text(errors="replace")[-2000:]
                raise MiniStackFailed(f"MiniStack did not start; {self.log_file} ends with:\n{tail}")
            await asyncio.sleep(0.01)
        ready: dict[str, int | bool] = json.loads(ready_file.read_text())
        return ready

    def _environment(self, temporary: Path) -> dict[str, str]:
        """Return the variables that it needs: no real credentials and no Docker socket of the user."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        settings = {
            "HOME": str(self._dir),
            "TMPDIR": str(temporary),
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "MINISTACK_ACCOUNT_ID": self._account_id,
            "MINISTACK_REGION": self._region,
            "MINISTACK_WORKER_THREADS": "8",
            "AWS_DEFAULT_REGION": self._region,
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "LOG_LEVEL": "WARNING",
            "DOCKER_HOST": f"unix://{temporary}/no-docker.sock",
        }
        if self._persist:
            settings |= {
                "PERSIST_STATE": "1",
                "STATE_DIR": str(self._dir / "state"),
                "S3_PERSIST": "1",
                "S3_DATA_DIR": str(self._dir / "s3"),
            }
        return kept | settings

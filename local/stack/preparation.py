"""Preparation process: start-up work that needs heavy modules, in a process that ends afterwards.

Translating the template, creating resources and migrating the database take 100 MB of modules that nothing
needs afterwards. The process speaks JSON lines: `{"do": name, …arguments}` in, `{"done": result}` or
`{"error": sentence, "usage": …}` out, until its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_LINE_BYTES: Final = 16 << 20


class PreparationFailed(RuntimeError):
    """Raised when a step failed; the text is for the user."""


class WrongUsage(PreparationFailed):
    """Raised when the template or its parameters are wrong."""


class Preparation:
    """Client of the process. Steps run one after the other, in the order of the calls."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start the process; it begins to import at once."""
        paths = (str(REPOSITORY), os.environ.get("PYTHONPATH", ""))
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "local.stack.preparation",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                start_new_session=True,
                limit=_LINE_BYTES,
            )

    async def translate(
        self, template: Path, automatic: Mapping[str, str], overrides: Mapping[str, str], region: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Call `local.template.translation.translate`. Raises PreparationFailed."""
        translated, parameters = await self._call(
            "translate", path=str(template), automatic=automatic, overrides=overrides, region=region
        )
        return translated, parameters

    async def create_resources(
        self, endpoint: str, template: Mapping[str, Any], region: str
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Create the resources of `template`; return physical ids and ARNs. Raises PreparationFailed."""
        ids, arns = await self._call("create", endpoint=endpoint, template=template, region=region)
        return ids, arns

    async def store_secrets(self, endpoint: str, texts: Mapping[str, str], region: str) -> dict[str, str]:
        """Put each text into Secrets Manager; return the ARNs by the same keys. Raises PreparationFailed."""
        arns: dict[str, str] = await self._call("store", endpoint=endpoint, texts=texts, region=region)
        return arns

    async def migrate(self, url: str, folder: Path, answer_s: float) -> list[str]:
        """Migrate the database and make its logins; return the names of applied files.

        `answer_s` is the limit of statements that a caller waits for. Raises PreparationFailed.
        """
        applied: list[str] = await self._call("migrate", url=url, folder=str(folder), answer_s=answer_s)
        return applied

    async def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _call(self, step: str, **arguments: Any) -> Any:
        async with self._turn:
            process = self._process
            if process is None or process.stdin is None or process.stdout is None:
                raise PreparationFailed("the preparation process does not run")
            process.stdin.write(json.dumps({"do": step, **arguments}).encode() + b"\n")
            reply = await process.stdout.readline()
        if not reply:
            raise PreparationFailed(f"the preparation process ended; see {self._log_path}")
        answer = json.loads(reply)
        if "error" in answer:
            raise (WrongUsage if answer["usage"] else PreparationFailed)(answer["error"])
        return answer["done"]


def _translate(path: str, **arguments: Any) -> Any:
    from local.backends.postgres_home import default_cache, server_account
    from local.template.translation import translate

    return translate(Path(path), cache=default_cache(server_account()), **arguments)


def _create(endpoint: str, template: dict[str, Any], region: str) -> Any:
    from local.backends.ministack_resources import create_resources

    made = create_resources(endpoint, template, region=region)
    # Values kept from an earlier start still contain the port of that time.
    at_endpoint = {
        name: endpoint + urlsplit(value).path if value.startswith("http") else value
        for name, value in made.ids.items()
    }
    return at_endpoint, dict(made.arns)


def _store(endpoint: str, texts: dict[str, str], region: str) -> dict[str, str]:
    from local.backends.ministack_resources import put_secret, session

    client = session(region).client("secretsmanager", endpoint_url=endpoint)
    return {key: put_secret(client, key.rpartition(":")[2], text) for key, text in texts.items()}


def _migrate(url: str, folder: str, answer_s: float) -> list[str]:
    sys.path.insert(0, folder)
    module = import_module("migrate")
    from local.backends.postgres_logins import login_urls

    applied: list[str] = module.migrate(url, logins=module.logins_of(login_urls(url), answer_s))
    return applied


_STEPS: Final[dict[str, Callable[..., Any]]] = {
    "translate": _translate,
    "create": _create,
    "store": _store,
    "migrate": _migrate,
}


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from local.template.intrinsics import TemplateError

    step = request.pop("do")
    try:
        return {"done": _STEPS[step](**request)}
    except TemplateError as error:
        return {"error": str(error), "usage": True}
    except Exception as error:  # noqa: BLE001 - the caller handles it
        traceback.print_exc()
        return {"error": f"{step} failed: {type(error).__name__}: {error}", "usage": False}


def main() -> None:
    """Serve standard input; output of the steps themselves goes to standard error."""
    out, sys.stdout = sys.stdout, sys.stderr
    for number, line in enumerate(sys.stdin):
        out.write(json.dumps(_answer(json.loads(line))) + "\n")
        out.flush()
        if number == 0:
            # While the backends start, load the modules of the following steps.
            import boto3
            import psycopg  # noqa: F401

            boto3.Session(region_name="us-east-1").client(
                "cloudformation", aws_access_key_id="local", aws_secret_access_key="local"
            )


if __name__ == "__main__":
    main()

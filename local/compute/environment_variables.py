"""Environment variables and paths of a function's process: a short list, never the host's own environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local.compute.launcher import LaunchRequest
from local.template.spec import FunctionSpec

_ZONE = ":UTC"
_PASSED_ON = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(slots=True)
class EnvironmentFactory:
    """Makes the launch request of an execution environment."""

    region: str
    account_id: str
    extra: dict[str, str] = field(default_factory=dict)
    """Settings of the host for every function; they override the template's."""
    path_prefix: tuple[Path, ...] = ()
    """Folders before the function's own on the module path."""
    packages: tuple[str, ...] = ()
    """Packages of the project below a layer's `python/`."""

    def arn(self, function: FunctionSpec) -> str:
        """Return the function's ARN."""
        return f"arn:aws:lambda:{self.region}:{self.account_id}:function:{function.name}"

    def request(self, function: FunctionSpec, port: int, scratch: Path, stream: str) -> LaunchRequest:
        """Return an environment's launch request: Runtime API on `port`, `scratch` as private folder."""
        path = [str(entry) for entry in self._path(function)]
        env = {
            **base_environment(),
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            **function.environment,
            **self.extra,
            **self._reserved(function, stream),
            **_logging(function.log_level),
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{port}",
            "PYTHONPATH": os.pathsep.join(path),
            # A same-size edit within one second would otherwise run stale bytecode.
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
        }
        return LaunchRequest(function.handler, env, str(function.code_dir), path, self.packages_of(function))

    def packages_of(self, function: FunctionSpec) -> tuple[Path, ...]:
        """Return the folders of the project's packages in the function's layers."""
        found = (layer / "python" / name for layer in function.layer_dirs for name in self.packages)
        return tuple(folder for folder in found if folder.is_dir())

    def _path(self, function: FunctionSpec) -> Iterable[Path]:
        yield from self.path_prefix
        yield function.code_dir
        for layer in function.layer_dirs:
            yield layer / "python"

    def _reserved(self, function: FunctionSpec, stream: str) -> Mapping[str, str]:
        """Return AWS's reserved variables.

        AWS_EXECUTION_ENV stays out: its value makes the runtime client start a thread per event, at three
        times the CPU.
        """
        return {
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": stream,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "LAMBDA_TASK_ROOT": str(function.code_dir),
            "TZ": _ZONE,
            "_HANDLER": function.handler,
        }


def base_environment() -> dict[str, str]:
    """Return the variables that every process of the host starts with."""
    interpreter = str(Path(sys.executable).parent)
    env = {"PATH": os.pathsep.join((interpreter, os.environ.get("PATH", os.defpath))), "LANG": "C.UTF-8"}
    return env | {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def supervisor_environment() -> dict[str, str]:
    """Return the variables of the processes that environments are forked from; none is a credential."""
    return base_environment() | {"TZ": _ZONE, "HOME": "/nonexistent"}


def _logging(level: str | None) -> dict[str, str]:
    """Return AWS's variables of a function with LogFormat JSON; none for one with text."""
    return {} if level is None else {"AWS_LAMBDA_LOG_FORMAT": "JSON", "AWS_LAMBDA_LOG_LEVEL": level}

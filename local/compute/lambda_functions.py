"""Function configurations, as Lambda's API returns them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from local.compute.host import LambdaHost
from local.compute.lambda_responses import OperationError, page
from local.template.spec import FunctionSpec, function_name

_PAGE: Final = 50


class FunctionConfigurations:
    """ListFunctions, GetFunction, GetFunctionConfiguration and GetFunctionConcurrency."""

    def __init__(self, host: LambdaHost) -> None:
        self._host = host

    def list(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return one page of all functions, in the order of their names."""
        names, rest = page(sorted(self._host.functions), query, _PAGE)
        return {"Functions": [self._configuration(self._host.spec(name)) for name in names], **rest}

    def get(self, reference: str) -> dict[str, Any]:
        """Return a function's configuration and the location of its code."""
        spec = self.spec(reference)
        code = {"RepositoryType": "local", "Location": spec.code_dir.resolve().as_uri()}
        return {"Configuration": self._configuration(spec), "Code": code, "Concurrency": _concurrency(spec)}

    def configuration(self, reference: str) -> dict[str, Any]:
        """Return a function's configuration."""
        return self._configuration(self.spec(reference))

    def concurrency(self, reference: str) -> dict[str, Any]:
        """Return the reserved concurrency of a function: empty when there is none."""
        return _concurrency(self.spec(reference))

    def spec(self, reference: str) -> FunctionSpec:
        """Return the function of a name or ARN. Raises OperationError (404) when there is none."""
        name = function_name(reference)
        try:
            return self._host.spec(name)
        except KeyError:
            raise unknown_function(self._host, name) from None

    def _configuration(self, spec: FunctionSpec) -> dict[str, Any]:
        changed = datetime.fromtimestamp(_last_modified(spec.code_dir), UTC)
        return {
            "FunctionName": spec.name,
            "FunctionArn": self._host.arn(spec.name),
            "Runtime": spec.runtime,
            "Handler": spec.handler,
            "Timeout": spec.timeout_s,
            "MemorySize": spec.memory_mb,
            "Environment": {"Variables": dict(spec.environment)},
            "Layers": [{"Arn": self._layer_arn(folder)} for folder in spec.layer_dirs],
            "LastModified": changed.strftime("%Y-%m-%dT%H:%M:%S.000+0000"),
            "PackageType": "Zip",
            "Version": "$LATEST",
            "State": "Active",
            "LastUpdateStatus": "Successful",
        }

    def _layer_arn(self, folder: Path) -> str:
        return f"arn:aws:lambda:{self._host.region}:{self._host.account_id}:layer:{folder.name}:1"


def unknown_function(host: LambdaHost, name: str) -> OperationError:
    """Return AWS's error for an unknown function."""
    arn = f"arn:aws:lambda:{host.region}:{host.account_id}:function:{name}"
    return OperationError(404, "ResourceNotFoundException", f"Function not found: {arn}")


def _concurrency(spec: FunctionSpec) -> dict[str, Any]:
    reserved = spec.reserved_concurrency
    return {} if reserved is None else {"ReservedConcurrentExecutions": reserved}


def _last_modified(folder: Path) -> float:
    """Return when the newest file of a function's code was written; the epoch when there is none."""
    return max((file.stat().st_mtime for file in folder.rglob("*.py")), default=0.0)

"""SAM transform: template.yaml in, CloudFormation out, with the code folders preserved.

The transform only accepts code in S3, so each local folder becomes `s3://<bucket>/<folder>` first:
bucket SOURCE for code that runs unchanged, BUILT for layers that a makefile builds.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.template.intrinsics import TemplateError
from local.template.parameters import parameter_values
from local.template.source import parsed

SOURCE = "source"
BUILT = "built"

_FOLDER_PROPERTIES = {
    "AWS::Serverless::Function": "CodeUri",
    "AWS::Serverless::LayerVersion": "ContentUri",
}


def translate(
    path: Path, automatic: Mapping[str, str], overrides: Mapping[str, str], region: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the template at `path` as CloudFormation, and the value of each of its parameters.

    `overrides` must name parameters of the template; `automatic` has lower precedence, unknown ones in it are
    ignored. Raises TemplateError with the transform's own reasons. Costs half a second and 50 MB for the
    transform's modules: run it in a process that ends.
    """
    os.environ["AWS_DEFAULT_REGION"] = region
    logging.getLogger("samtranslator").setLevel(logging.ERROR)
    from samtranslator.model.exceptions import InvalidDocumentException
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator

    try:
        source = parsed(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TemplateError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # any error of the parser for a broken file
        raise TemplateError(f"{path} is not a template: {error}") from error
    if not isinstance(source, dict) or "Resources" not in source:
        raise TemplateError(f"{path} is not a template: it has no Resources")
    declared = source.get("Parameters") or {}
    known = {name: value for name, value in automatic.items() if name in declared}
    parameters = parameter_values(declared, {**known, **overrides})
    _move_code_to_s3(source)
    try:
        translated: dict[str, Any] = Translator({}, Parser()).translate(source, dict(parameters))
    except InvalidDocumentException as error:
        reasons = "; ".join(str(cause.message) for cause in error.causes) or error.message
        raise TemplateError(f"{path.name} cannot be translated: {reasons}") from error
    return translated, parameters


def _move_code_to_s3(source: dict[str, Any]) -> None:
    shared = (source.get("Globals") or {}).get("Function") or {}
    if isinstance(shared.get("CodeUri"), str):
        shared["CodeUri"] = _address(SOURCE, shared["CodeUri"])
    for resource in source["Resources"].values():
        name = _FOLDER_PROPERTIES.get(resource.get("Type"), "")
        properties = resource.get("Properties") or {}
        folder = properties.get(name)
        if isinstance(folder, str) and not folder.startswith("s3://"):
            built = "BuildMethod" in (resource.get("Metadata") or {})
            properties[name] = _address(BUILT if built else SOURCE, folder)


def _address(bucket: str, folder: str) -> str:
    clean = folder.removeprefix("./").rstrip("/")
    return f"s3://{bucket}/{clean or '.'}"

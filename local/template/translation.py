"""SAM transform: template.yaml in, CloudFormation out, with the code folders preserved.

The transform only accepts code in S3, so each local folder becomes `s3://<bucket>/<folder>` first:
bucket SOURCE for code that runs unchanged, BUILT for layers that a makefile builds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from local.template.intrinsics import TemplateError
from local.template.parameters import parameter_values
from local.template.source import parsed

SOURCE = "source"
BUILT = "built"
_MOST_KEPT: Final = 16

_FOLDER_PROPERTIES = {
    "AWS::Serverless::Function": "CodeUri",
    "AWS::Serverless::LayerVersion": "ContentUri",
}


def translate(
    path: Path,
    automatic: Mapping[str, str],
    overrides: Mapping[str, str],
    region: str,
    cache: Path | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the template at `path` as CloudFormation, and the value of each of its parameters.

    `overrides` must name parameters of the template; `automatic` has lower precedence, unknown ones in it are
    ignored. Raises TemplateError with the transform's own reasons. Costs half a second and 50 MB for the
    transform's modules, unless the result is in the folder `cache`: run it in a process that ends.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TemplateError(f"{path} cannot be read: {error.strerror}") from error
    kept = None if cache is None else cache / f"template-{_digest(text, overrides, region)}.json"
    translated = None if kept is None else _kept(kept)
    source = _source(path, text) if translated is None else translated
    declared = source.get("Parameters") or {}
    known = {name: value for name, value in automatic.items() if name in declared}
    parameters = parameter_values(declared, {**known, **overrides})
    if translated is None:
        defaults = {name: str(rules["Default"]) for name, rules in declared.items() if "Default" in rules}
        translated = _transformed(path.name, source, {**defaults, **overrides}, region)
        if kept is not None:
            text = json.dumps(translated)
            _keep(kept, text)
            translated = json.loads(text)
    return translated, parameters


def _digest(text: str, overrides: Mapping[str, str], region: str) -> str:
    """Return what the transform's result depends on; that this is all of it is tested."""
    from samtranslator import __version__

    own = [each.read_text(encoding="utf-8") for each in sorted(Path(__file__).parent.glob("*.py"))]
    parts = (text, sorted(overrides.items()), region, __version__, own)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _kept(file: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return found


def _keep(file: Path, text: str) -> None:
    """Write the file, and delete the oldest of its kind; without effect where that is not possible."""
    with contextlib.suppress(OSError):
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
        files = sorted(file.parent.glob("template-*"), key=lambda each: each.stat().st_mtime)
        for old in files[:-_MOST_KEPT]:
            old.unlink()


def _source(path: Path, text: str) -> dict[str, Any]:
    try:
        source = parsed(text)
    except Exception as error:  # any error of the parser for a broken file
        raise TemplateError(f"{path} is not a template: {error}") from error
    if not isinstance(source, dict) or "Resources" not in source:
        raise TemplateError(f"{path} is not a template: it has no Resources")
    return source


def _transformed(name: str, source: dict[str, Any], given: Mapping[str, str], region: str) -> dict[str, Any]:
    """Return the transform's result. What a stack chooses by itself is resolved later, as its ports are."""
    os.environ["AWS_DEFAULT_REGION"] = region
    logging.getLogger("samtranslator").setLevel(logging.ERROR)
    from samtranslator.model.exceptions import InvalidDocumentException
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator

    _move_code_to_s3(source)
    try:
        translated: dict[str, Any] = Translator({}, Parser()).translate(source, dict(given))
    except InvalidDocumentException as error:
        reasons = "; ".join(str(cause.message) for cause in error.causes) or error.message
        raise TemplateError(f"{name} cannot be translated: {reasons}") from error
    return translated


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

"""CloudFormation templates as text: YAML with short intrinsics in place of long ones."""

from __future__ import annotations

from functools import cache
from typing import Any


def parsed(text: str) -> Any:
    """Return what a template says, `!Ref name` as `{"Ref": "name"}`. Raises yaml.YAMLError."""
    import yaml

    return yaml.load(text, _loader())  # noqa: S506


@cache
def _loader() -> Any:
    import yaml
    from samtranslator.yaml_helper import intrinsics_multi_constructor

    # The parser in C: the other takes a second for each template.
    loader: Any = type("Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
    loader.add_multi_constructor("!", intrinsics_multi_constructor)
    return loader

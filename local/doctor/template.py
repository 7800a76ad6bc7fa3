"""Checks of template.yaml, by what the stack itself does with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from local.doctor.finding import Finding, ok, wrong

_REGION = "eu-west-1"


def template(path: Path) -> Iterator[Finding]:
    """Whether it can be translated, and whether queues hide messages for long enough."""
    from local.intrinsics import TemplateError
    from local.template import Template
    from local.translation import translate

    about = "template"
    # What a stack would find out by itself; any value will do here.
    found_out = {"MembershipUrl": "http://127.0.0.1:1", "EmbeddingBaseUrl": "http://127.0.0.1:1/v1"}
    try:
        translated, parameters = translate(path, found_out, {}, _REGION)
    except TemplateError as error:
        yield wrong(about, str(error), f"mend {path}")
        return
    yield ok(about, f"{path.name} can be translated: {len(translated['Resources'])} resources")
    made = Template(translated, parameters, folder=path.parent, region=_REGION, account_id="000000000000")
    try:
        made.check_visibility()
    except TemplateError as error:
        yield wrong("queues", str(error), f"mend {path}")
        return
    yield ok("queues", "each hides messages for long enough")

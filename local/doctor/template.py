"""Check of template.yaml, by the code that the stack uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from local.doctor.finding import Finding, ok, wrong

_REGION = "eu-west-1"


def template(path: Path) -> Iterator[Finding]:
    """Check that it can be translated, and that queues' visibility time-outs are long enough."""
    from local.template.intrinsics import TemplateError
    from local.template.template import Template
    from local.template.translation import translate

    about = "template"
    # Parameters that a stack supplies itself; any value will do here.
    found_out = {"MembershipUrl": "http://127.0.0.1:1", "EmbeddingBaseUrl": "http://127.0.0.1:1/v1"}
    try:
        translated, parameters = translate(path, found_out, {}, _REGION)
    except TemplateError as error:
        yield wrong(about, str(error), "neither a stack nor a deployment starts", f"edit {path}")
        return
    yield ok(about, f"{len(translated['Resources'])} resources")
    made = Template(translated, parameters, folder=path.parent, region=_REGION, account_id="000000000000")
    try:
        made.check_visibility()
    except TemplateError as error:
        affects = "no stack starts; on AWS a message would be redelivered while it is processed"
        yield wrong("queues", str(error), affects, f"edit {path}")
        return
    yield ok("queues", "visibility time-outs are long enough")

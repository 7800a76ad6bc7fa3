"""docs/api.md: every error code is listed, and as transient or permanent as the services classify it."""

from __future__ import annotations

import re

import pytest

from indexmill.contracts.errors import ErrorCode
from indexmill.embedding import classify as embedding
from indexmill.scraper import classify as scraping
from tests.support.repository import ROOT


def page() -> str:
    return (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def listed(stage: str) -> tuple[set[str], set[str]]:
    """Return the transient and the permanent codes of a stage's row."""
    (row,) = re.findall(rf"^\| {stage} \|(.*)\|(.*)\|$", page().split("## Errors")[1], re.MULTILINE)
    transient, permanent = (set(re.findall(r"`(\w+)`", cell)) for cell in row)
    return transient, permanent


def test_every_code_is_in_the_page() -> None:
    assert [code.value for code in ErrorCode if f"`{code.value}`" not in page()] == []


@pytest.mark.parametrize(("stage", "service"), [("scraping", scraping), ("embedding", embedding)])
def test_codes_are_as_transient_as_the_page_says(stage: str, service: object) -> None:
    table = vars(service)["_FAILURES"]
    ends = {row.code if getattr(row, "code", None) else cause for cause, row in table.items()}
    ends.discard("damaged")
    transient, permanent = listed(stage)
    codes = {code for code in transient | permanent if not code.startswith("http_")}
    assert codes == {str(code) for code in ends}
    # A damaged page is tried again and ends as parse_error, which is permanent otherwise.
    kept = {code: row.transient for code, row in table.items() if not getattr(row, "code", None)}
    assert {str(code) for code, retried in kept.items() if retried} == {
        code for code in transient if not code.startswith("http_")
    }

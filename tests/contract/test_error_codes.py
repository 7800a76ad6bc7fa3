"""Rows of ErrorCode: what each says of its cause, and that docs/api.md lists it as the row says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from indexmill.contracts.errors import HTTP_STATUS, ErrorCode, Trait, codes, failure
from indexmill.embedding.worker import is_of_one_document
from indexmill.scraper.adapters.answer import damaged
from tests.support.repository import ROOT

CAUSES = json.loads((Path(__file__).parent / "error_codes.json").read_text(encoding="utf-8"))
"""What callers and operators rely on: a row of it changes on purpose only."""


def page() -> str:
    return (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def listed() -> tuple[set[str], set[str]]:
    """Return the transient and the permanent codes of the stages that reach other sides."""
    table = page().split("## Errors")[1]
    rows = re.findall(r"^\| (?:scraping|embedding) \|(.*)\|(.*)\|$", table, re.MULTILINE)
    transient, permanent = (
        {code for cell in cells for code in re.findall(r"`([a-z]\w+)`", cell)}
        for cells in zip(*rows, strict=True)
    )
    return {each for each in transient if not each.startswith("http_")}, permanent


def test_every_code_is_in_the_page() -> None:
    assert [code.value for code in ErrorCode if f"`{code.value}`" not in page()] == []


def test_codes_are_as_transient_as_the_page_says() -> None:
    failures = {code.value for code in ErrorCode if code.message}
    transient, permanent = listed()
    assert transient == failures & codes(Trait.TRANSIENT)
    # A name that does not exist is the end of a new page.
    assert permanent - {"dns_error"} == failures - codes(Trait.TRANSIENT)


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_has_its_code_and_what_follows_from_it(cause: str) -> None:
    row = CAUSES[cause]
    assert (
        HTTP_STATUS.get(cause),
        cause in codes(Trait.RETRY_HELPS),
        cause in codes(Trait.AFTER_ROBOTS),
        cause in codes(Trait.OUTAGE),
    ) == (row["status"], row["retry_helps"], row["of_page"], row.get("outage", False))
    if "stage" not in row:
        return
    error = damaged() if cause == "damaged" else failure(cause)
    assert (error.code, error.retryable, error.message) == (row["ends_as"], row["transient"], row["message"])
    if row["stage"] == "embedding":
        assert is_of_one_document(error) == row["of_document"]

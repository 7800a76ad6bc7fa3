"""Nothing that is deployed knows of faults."""

from __future__ import annotations

import re

import pytest

from tests.support.repository import ROOT, inside, text_files

DEPLOYED = ("functions/", "layers/", "sql/", "template.yaml")
WORDS = re.compile(r"FAULTS|sitecustomize|local\.faults|kill_(?:before|after)|execute_then_error|chaos")


@pytest.mark.shows("S39")
def test_no_deployed_file_names_them() -> None:
    texts = {inside(path): text for path, text in text_files().items() if inside(path).startswith(DEPLOYED)}
    assert len(texts) > 100
    assert {name: found[0] for name, text in texts.items() if (found := WORDS.search(text))} == {}


def test_the_words_are_those_of_the_kit() -> None:
    kit = [path.read_text(encoding="utf-8") for path in (ROOT / "local" / "faults").rglob("*.py")]
    assert sum(bool(WORDS.search(text)) for text in kit) > 5

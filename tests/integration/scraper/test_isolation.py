"""Risky content in a process of its own."""

from __future__ import annotations

import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from indexmill.contracts.errors import IndexmillError, PermanentError, TransientError
from indexmill.scraper.adapters.process_isolation import ProcessIsolation
from indexmill.scraper.extract.content import Kind, RawContent, Wanted
from tests.support.function_env import template
from tests.unit.scraper.pdf_file import pdf


def html(text: str) -> RawContent:
    return RawContent(text.encode(), Kind.HTML, "utf-8")


def test_a_pdf_is_read() -> None:
    found = ProcessIsolation().extract(RawContent(pdf("One", "Two"), Kind.PDF), timeout_s=20)
    assert (found.markdown, found.title) == ("One\n\nTwo", "One")


def test_a_word_document_is_read_within_the_memory_of_the_function() -> None:
    isolation = ProcessIsolation.within(512)
    body = (Path(__file__).parents[2] / "unit" / "scraper" / "files" / "rules.docx").read_bytes()
    assert isolation.extract(RawContent(body, Kind.DOCX), timeout_s=20).title == "Rules of the mill"


def test_a_large_page_is_read_whole() -> None:
    text = "<html lang=de><title>Größe</title><main>" + "<p>Wort <b>fett</b></p>" * 20_000
    found = ProcessIsolation().extract(html(text), timeout_s=20)
    assert (found.title, found.language) == ("Größe", "de")
    assert found.markdown.count("Wort **fett**") == 20_000


@pytest.mark.shows("R232")
def test_what_is_wanted_of_a_large_page_comes_along() -> None:
    text = '<meta name="author" content="Größe"><nav>Menu</nav><main>' + "<p>Wort</p>" * 20_000
    wanted = Wanted(html=True, details=True, whole=True)
    found = ProcessIsolation().extract(replace(html(text), wanted=wanted), timeout_s=20)
    assert found.metadata == {"author": "Größe"}
    assert found.html is not None
    assert found.html.count("<p>Wort</p>") == 20_000
    assert found.markdown.startswith("Menu")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (RawContent(b"%PDF-1.4 broken", Kind.PDF), "parse_error"),
        (RawContent(pdf(""), Kind.PDF), "empty_content"),
        (html("<nav>only</nav>"), "empty_content"),
    ],
)
def test_what_the_child_refuses_is_refused(content: RawContent, code: str) -> None:
    with pytest.raises(PermanentError) as caught:
        ProcessIsolation().extract(content, timeout_s=20)
    assert caught.value.code == code


def outcome(isolation: ProcessIsolation, text: str | RawContent, timeout_s: float) -> IndexmillError:
    started = time.monotonic()
    with pytest.raises(IndexmillError) as caught:
        isolation.extract(text if isinstance(text, RawContent) else html(text), timeout_s=timeout_s)
    # Below every limit of 20 s here: what stopped it is the lower one.
    assert time.monotonic() - started < 15.0
    return caught.value


def test_endless_nesting_is_stopped() -> None:
    error = outcome(ProcessIsolation(limit_s=1.0), "<div>" * 200_000 + "x", 20)
    assert (type(error), error.code) == (PermanentError, "parse_error")


def test_a_deadline_that_is_shorter_is_tried_again() -> None:
    error = outcome(ProcessIsolation(limit_s=20.0), "<div>" * 200_000 + "x", 0.8)
    assert (type(error), error.code) == (TransientError, "deadline_exceeded")


def test_the_densest_page_of_eight_megabytes_fits_the_scrapers_memory() -> None:
    memory = template()["Resources"]["ScraperWorker"]["Properties"]["MemorySize"]
    text = "<html><main>" + "<p>Wort <b>fett</b></p>" * 330_000
    assert 7 < len(text) / 2**20 < 8
    found = ProcessIsolation.within(memory).extract(html(text), timeout_s=60)
    assert found.encoded.count(b"Wort **fett**") == 330_000
    assert found.markdown == ""


def test_more_text_than_a_page_can_have_is_refused() -> None:
    line = "x" + "," * 3_000_000
    error = outcome(ProcessIsolation(memory_bytes=1 << 30), RawContent(line.encode(), Kind.CSV), 20)
    assert (type(error), error.code) == (PermanentError, "content_too_large")


@pytest.mark.parametrize("name", ["ScraperWorker", "ScraperApi"])
def test_a_pdf_and_a_page_of_wide_characters_fit_the_scrapers_memory(name: str) -> None:
    isolation = ProcessIsolation.within(template()["Resources"][name]["Properties"]["MemorySize"])
    assert isolation.extract(RawContent(pdf("One", "Two"), Kind.PDF), timeout_s=20).title == "One"
    found = isolation.extract(
        html("<html><main>" + "<p>Wort \U0001f600 <b>fett</b></p>" * 100_000), timeout_s=60
    )
    assert found.markdown.count("\U0001f600") == 100_000


@pytest.mark.shows("B59")
@pytest.mark.parametrize("function_mb", [512, 1024, 4096])
def test_a_pdf_gets_256_mib_whatever_the_function_has(function_mb: int) -> None:
    packed = zlib.compress(b"BT /F 12 Tf 72 700 Td (Words) Tj ET" + b" " * (200 << 20))
    before, _, rest = pdf("").partition(b"<</Length")
    stream = b"<</Filter/FlateDecode/Length %d>>stream\n%s\n" % (len(packed), packed)
    bomb = RawContent(before + stream + rest[rest.index(b"endstream") :], Kind.PDF)
    error = outcome(ProcessIsolation.within(function_mb), bomb, 20)
    assert (type(error), error.code) == (PermanentError, "parse_error")


@pytest.mark.fault("F68")
def test_memory_is_bounded() -> None:
    isolation = ProcessIsolation(memory_bytes=300 << 20)
    error = outcome(isolation, "".join(f"<a b={at}>x</a><p>" for at in range(800_000)), 20)
    assert (type(error), error.code) == (PermanentError, "parse_error")

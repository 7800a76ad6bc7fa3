"""Content that is made to take memory, one after the other in one worker: it grows little."""

from __future__ import annotations

import gzip
import io
import logging
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.scraper.site import Site
from tests.integration.scraper.worker_process import endless, grown
from tests.support.function_env import template
from tests.unit.scraper.pdf_file import pdf

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

MOST_GROWTH_MB = 64
MB = 1_000_000
LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {chr(98 + at)} "{f"&{chr(97 + at)};" * 10}">' for at in range(9)
)
"""A thousand million laughs in an entity named "j"."""
OFFICE = "application/vnd.openxmlformats-officedocument"
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def zeros(packer: Callable[[], Any], megabytes: int) -> bytes:
    packed = packer()
    return b"".join(packed.compress(bytes(MB)) for _ in range(megabytes)) + packed.flush()


def archive(parts: dict[str, bytes | str], declared: int | None = None) -> bytes:
    """Return a ZIP file; `declared` is the size that it says of each part."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, body in parts.items():
            # The first part of a book has to be unpacked to be seen.
            made.writestr(name, body, zipfile.ZIP_STORED if name == "mimetype" else None)
        for entry in made.infolist() if declared is not None else ():
            entry.file_size = declared
    return out.getvalue()


def pdf_bomb() -> bytes:
    packed = zlib.compress(b"BT /F 12 Tf 72 700 Td (Words) Tj ET" + b" " * (400 * MB))
    before, _, rest = pdf("").partition(b"<</Length")
    stream = b"<</Filter/FlateDecode/Length %d>>stream\n%s\n" % (len(packed), packed)
    return before + stream + rest[rest.index(b"endstream") :]


BOMBS: dict[str, tuple[Callable[[], bytes | str], str, set[str]]] = {
    "nested divs": (lambda: "<!doctype html>" + "<div>" * 300_000 + "x", "text/html", {"parse_error"}),
    "a million tags": (
        lambda: "<!doctype html><main>" + "<b>x</b>\n" * MB,
        "text/html",
        {"done", "parse_error"},
    ),
    "a huge attribute": (lambda: f"<!doctype html><p title='{'x' * 9 * MB}'>word", "text/html", {"done"}),
    "a million attributes": (
        lambda: "<!doctype html><p " + " ".join(f"a{at}=1" for at in range(900_000)) + ">word",
        "text/html",
        {"done", "parse_error"},
    ),
    "wide text": (lambda: "\U0001f600" + "word " * (2 * MB - 10), "text/plain", {"done"}),
    "a table of commas": (lambda: "x" + "," * 9 * MB, "text/csv", {"content_too_large", "parse_error"}),
    "lines of commas": (
        lambda: ("x" + "," * 999 + "\n") * 9_000,
        "text/csv",
        {"content_too_large", "parse_error"},
    ),
    "as much text as there may be": (
        lambda: "[" * 8 + '"xxxxxxxx",' * 740_000 + "1" + "]" * 8,
        "application/json",
        {"done"},
    ),
    "deep json": (lambda: "[" * 9 * MB, "application/json", {"parse_error"}),
    "wide json": (
        lambda: "[" * 12 + "1," * (4 * MB) + "1" + "]" * 12,
        "application/json",
        {"content_too_large", "parse_error"},
    ),
    "laughs in a feed": (
        lambda: f"<?xml version='1.0'?>{LAUGHS}]><rss><channel><title>&j;</title></channel></rss>",
        "application/rss+xml",
        {"parse_error"},
    ),
    "deep xml": (lambda: "<?xml version='1.0'?>" + "<a>" * 2 * MB, "application/xml", {"parse_error"}),
    "laughs in docx": (
        lambda: archive({"word/document.xml": f"{LAUGHS}]><w:document {WORD}>&j;</w:document>"}),
        f"{OFFICE}.wordprocessingml.document",
        {"parse_error"},
    ),
    "laughs in xlsx": (
        lambda: archive({"xl/workbook.xml": f"{LAUGHS}]><workbook>&j;</workbook>"}),
        f"{OFFICE}.spreadsheetml.sheet",
        {"parse_error"},
    ),
    "laughs in epub": (
        lambda: archive(
            {
                "mimetype": "application/epub+zip",
                "META-INF/container.xml": f"{LAUGHS}]><container>&j;</container>",
            }
        ),
        "application/epub+zip",
        {"parse_error"},
    ),
    "a sheet of nothing": (
        lambda: archive({"xl/workbook.xml": "<workbook/>", "xl/worksheets/sheet1.xml": bytes(900 * MB)}),
        f"{OFFICE}.spreadsheetml.sheet",
        {"content_too_large"},
    ),
    "a part that lies": (
        lambda: archive({"word/document.xml": bytes(300 * MB)}, declared=100),
        f"{OFFICE}.wordprocessingml.document",
        {"parse_error"},
    ),
    "a hundred thousand parts": (
        lambda: archive({"word/document.xml": "<x/>", **{f"p{at}": b"" for at in range(60_000)}}),
        f"{OFFICE}.wordprocessingml.document",
        {"content_too_large"},
    ),
    "a packed page of pdf": (pdf_bomb, "application/pdf", {"parse_error"}),
    "too many pages of pdf": (lambda: pdf(*["w"] * 20_000), "application/pdf", {"content_too_large", "done"}),
}
"""Content, its type, and the codes that it may end with."""


@pytest.mark.fault("F68")
@pytest.mark.shows("B50", "B51", "B52", "B56", "B58", "B59")
def test_no_bomb_makes_the_worker_grow(site: Site) -> None:
    site.page("/fine", "<!doctype html><title>T</title><p>Some words.</p>")
    bomb = zeros(lambda: zlib.compressobj(9, zlib.DEFLATED, 31), 320)
    site.page("/gzip", bomb, content_encoding="gzip")
    site.page("/gzip-gzip", gzip.compress(bomb), content_encoding="gzip, gzip")
    site.route("/endless", endless)
    expected = {"/gzip": {"content_bomb"}, "/gzip-gzip": {"unsupported_content_type"}}
    expected["/endless"] = {"content_too_large"}
    for at, (make, content_type, codes) in enumerate(BOMBS.values()):
        site.page(f"/bomb{at}", make(), content_type)
        expected[f"/bomb{at}"] = codes
    memory = template()["Resources"]["ScraperWorker"]["Properties"]["MemorySize"]
    paths = list(expected)
    found = grown(
        site, [[path] for path in paths], timeout_s=800, AWS_LAMBDA_FUNCTION_MEMORY_SIZE=str(memory)
    )
    names = ["gzip", "gzip twice", "endless", *BOMBS]
    table = {name: (each["grown_mb"], *each["codes"]) for name, each in zip(names, found, strict=True)}
    wrong = {name for name, path in zip(names, paths, strict=True) if table[name][1] not in expected[path]}
    report = "\n".join(map(str, table.items()))
    logging.getLogger(__name__).info("MiB grown, and codes:\n%s", report)
    assert wrong == set(), report
    assert max(each["grown_mb"] for each in found) <= MOST_GROWTH_MB, report

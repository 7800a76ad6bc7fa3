"""Detection of a body's type."""

from __future__ import annotations

import gzip

import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.scraper.extract.content import Kind, detect

HTML = b"<!DOCTYPE html><html><body>x</body></html>"
XHTML = b"xmlns='http://www.w3.org/1999/xhtml'>"
SITE = "https://example.com/page"


@pytest.mark.parametrize(
    ("body", "content_type", "url", "kind"),
    [
        (HTML, "text/html", SITE, Kind.HTML),
        (b"just words", "text/html", SITE, Kind.HTML),
        (HTML, "application/xhtml+xml", SITE, Kind.XHTML),
        (b"<?xml version='1.0'?><html/>", "application/xhtml+xml", SITE, Kind.XHTML),
        (b"words", "application/xhtml+xml", SITE, Kind.XHTML),
        (HTML, "text/html", SITE + ".xhtml", Kind.HTML),
        (HTML.replace(b"html>", XHTML), "text/html", SITE, Kind.HTML),
        (b"<?xml version='1.0'?><html " + XHTML, "text/xml", SITE, Kind.XHTML),
        (
            b"<?xml version='1.0'?><h:html xmlns:h='http://www.w3.org/1999/xhtml'>",
            "text/xml",
            SITE,
            Kind.XHTML,
        ),
        (b"<rss xmlns:h='http://www.w3.org/1999/xhtml'/>", "text/xml", SITE, Kind.XML),
        (b"<html><p/></html>", "", SITE + ".xhtml", Kind.HTML),
        (b"<?xml version='1.0'?><html/>", "", SITE + ".xhtml", Kind.XHTML),
        (b"<!DOCTYPE html><html lang='en' " + XHTML, "application/octet-stream", SITE + ".xht", Kind.XHTML),
        (b"# x", "text/markdown", SITE, Kind.MARKDOWN),
        (b"x", "text/plain", SITE, Kind.TEXT),
        (HTML, "text/plain", SITE, Kind.TEXT),
        (b"# x", "text/plain", SITE + "/README.md", Kind.MARKDOWN),
        (b"%PDF-1.7 x", "application/pdf", SITE, Kind.PDF),
        (b"%PDF-1.7 x", "text/html", SITE, Kind.PDF),
        (b"junk\n%PDF-1.4", "", SITE, Kind.PDF),
        (HTML, "application/pdf", SITE, Kind.HTML),
        (HTML, "application/json", SITE, Kind.HTML),
        (b"{}", "application/json", SITE, Kind.JSON),
        (b"{}\n{}", "application/x-ndjson", SITE, Kind.JSON),
        (b"{}\n{}", "", SITE + "/a.jsonl", Kind.JSON),
        (b"<html>a\0b", "text/html", SITE, Kind.HTML),
        (b"{}", "text/plain", SITE + "/a.json", Kind.JSON),
        (b"a,b", "text/plain", SITE + "/a.csv", Kind.CSV),
        (b"<r/>", "text/xml", SITE, Kind.XML),
        (b"<r/>", "", SITE + "/feed.xml", Kind.XML),
        (b"\xef\xbb\xbf  \n" + HTML, "", SITE, Kind.HTML),
        (HTML, "application/octet-stream", SITE, Kind.HTML),
        (b"# x", "application/octet-stream", SITE + "/a.md", Kind.MARKDOWN),
        (b"x", "", SITE + "/a.txt", Kind.TEXT),
        ("<!doctype html>".encode("utf-16"), "text/html", SITE, Kind.HTML),
        ("<html>".encode("utf-16-le"), "text/html", SITE, Kind.HTML),
    ],
)
def test_the_bytes_win_over_what_the_site_says(body: bytes, content_type: str, url: str, kind: Kind) -> None:
    assert detect(body, content_type, url) is kind


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"x", "image/png", "unsupported_content_type"),
        (b"<svg/>", "image/svg+xml", "unsupported_content_type"),
        (b"x", "application/octet-stream", "unsupported_content_type"),
        (b"x", "", "unsupported_content_type"),
        (b"PK\x03\x04...", "text/html", "unsupported_content_type"),
        pytest.param(gzip.compress(HTML), "text/html", "unsupported_content_type", id="gzip"),
        (b"MZ\x90", "text/plain", "unsupported_content_type"),
        (b"words\0words", "text/html", "unsupported_content_type"),
        (b"words", "application/pdf", "parse_error"),
        (b"words", Kind.DOCX.value, "parse_error"),
        (b"", "text/html", "empty_content"),
        (b" \n\t ", "text/html", "empty_content"),
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes, content_type: str, code: str) -> None:
    with pytest.raises(PermanentError) as caught:
        detect(body, content_type, SITE)
    assert caught.value.code == code

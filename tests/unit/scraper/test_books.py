"""EPUB books: known by their parts and not by the order of these, and read with every chapter."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.scraper.adapters.process_isolation import ProcessIsolation
from indexmill.scraper.extract.content import Extracted, Kind, RawContent, detect, extract
from tests.support.books import book, chapter
from tests.unit.scraper.test_formats import FILES, repacked

URL = "https://example.com/book"
ONE, TWO, THREE = (
    chapter(f"<h1>Chapter {each}</h1><p>Text of {each}.</p>") for each in ("one", "two", "three")
)
LISTED = "# Chapter one\n\nText of one.\n\n# Chapter two\n\nText of two.\n\n# Chapter three\n\nText of three."


def read(body: bytes) -> Extracted:
    kind = detect(body, "application/epub+zip", URL)
    assert kind is Kind.EPUB
    return extract(RawContent(body, kind))


@pytest.mark.parametrize(
    "content_type", ["application/epub+zip", "application/octet-stream", "", "text/html"]
)
@pytest.mark.parametrize("last", ["mimetype", "META-INF/container.xml", "OEBPS/book.opf", "OEBPS/c2.xhtml"])
def test_a_book_is_known_by_its_parts_in_any_order(last: str, content_type: str) -> None:
    body = book([ONE, TWO, THREE], last=last)
    assert detect(body, content_type, URL) is Kind.EPUB
    assert read(body) == Extracted(LISTED, "A book", "en")


def test_a_book_within_another_file_makes_it_no_book() -> None:
    inner = book([ONE])
    stored = repacked("rules.docx", word__embeddings__book=inner)
    assert detect(stored, "application/octet-stream", URL) is Kind.DOCX
    other = _stored({"archive/book.epub": inner})
    assert b"META-INF/container.xml" in other
    with pytest.raises(PermanentError) as caught:
        detect(other, "application/epub+zip", URL)
    assert caught.value.code == "unsupported_content_type"


def _stored(parts: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as target:
        for name, body in parts.items():
            target.writestr(name, body)
    return made.getvalue()


@pytest.mark.shows("B58")
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: book([ONE])[:-40], "parse_error"),
        (lambda: book([ONE], others={"OEBPS/image.png": b"\0" * (70 << 20)}), "content_too_large"),
        (
            lambda: _stored({"META-INF/container.xml": b"", **{f"p{at}": b"" for at in range(10_001)}}),
            "content_too_large",
        ),
        (lambda: _stored({f"p{at}": b"" for at in range(10_001)}), "unsupported_content_type"),
        (lambda: _stored({"OEBPS/c1.xhtml": b"x"}), "unsupported_content_type"),
    ],
    ids=["cut", "bomb", "parts", "parts of no book", "no container"],
)
def test_the_bounds_of_an_archive_hold_before_it_is_known(make: Callable[[], bytes], code: str) -> None:
    body = make()
    with pytest.raises(PermanentError) as caught:
        detect(body, "application/epub+zip", URL)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "head", ['<script src="a.js"/>', "<title/>", "<style/>", "<script/><title/>", "<title>T</title><script/>"]
)
def test_no_chapter_is_lost_to_an_empty_element(head: str) -> None:
    two = chapter("<h1>Chapter two</h1><iframe/><p>Text of two.</p>", head)
    assert read(book([ONE, two, THREE])).markdown == LISTED
    assert read(book([two, two])).markdown.count("Text of two.") == 2


def test_a_chapter_is_what_the_manifest_says_it_is() -> None:
    two = chapter("<h1>Chapter two</h1><script/><p>Text of two.</p>")
    as_html = read(book([ONE, two], media_type="text/html"))
    assert "Text of two." not in as_html.markdown
    assert "Text of two." in read(book([ONE, two], media_type=" Application/XHTML+XML")).markdown


@pytest.mark.parametrize(
    "damaged",
    [
        "<html><body><h1>Chapter two</h1><p>Text of two.",
        "<h1>Chapter two</h1><p>Text <b>of</i> two.</p>".replace("<b>of</i>", "of</i>"),
        chapter("<h1>Chapter two</h1><p class=x>Text&nbsp;of two.</p></div>"),
        '<!DOCTYPE html [<!ENTITY two SYSTEM "file:///etc/passwd">]>'
        + chapter("<h1>Chapter two</h1>Text of two."),
    ],
)
def test_a_chapter_that_is_not_well_formed_is_read_as_html(damaged: str) -> None:
    assert read(book([ONE, damaged, THREE])).markdown == LISTED


def test_chapters_without_text_are_named_in_a_note() -> None:
    cover = chapter('<img src="cover.png" alt=""/>')
    found = read(book([ONE, cover, THREE]))
    assert found.notes == ("Chapters without text: 1 of 3 (c2.xhtml)",)
    many = read(book([ONE, *[cover] * 7]))
    assert many.notes == (
        "Chapters without text: 7 of 8 (c2.xhtml, c3.xhtml, c4.xhtml, c5.xhtml, c6.xhtml and 2 more)",
    )
    contents = chapter('<nav><ol><li><a href="c2.xhtml">Chapter one</a></li></ol></nav>')
    assert read(book([contents, ONE], properties="nav")).notes == ()


@pytest.mark.parametrize(
    ("href", "part"),
    [
        ("c%201.xhtml", "OEBPS/c 1.xhtml"),
        ("%C3%A9.xhtml", "OEBPS/\u00e9.xhtml"),
        ("c%201.xhtml", "OEBPS/c%201.xhtml"),
        ("../Text/./c1.xhtml", "Text/c1.xhtml"),
        ("/OEBPS/c9.xhtml", "OEBPS/c9.xhtml"),
        ("c9.xhtml#start", "OEBPS/c9.xhtml"),
    ],
)
def test_a_chapter_is_found_as_programs_write_its_place(href: str, part: str) -> None:
    body = book(
        [ONE], others={part: TWO}, more=f'<item id="x" href="{href}" media-type="application/xhtml+xml"/>'
    )
    assert read(body).markdown == "# Chapter one\n\nText of one.\n\n# Chapter two\n\nText of two."


@pytest.mark.parametrize(
    ("root", "package"),
    [
        ('<rootfile full-path="./OEBPS/book.opf"/>', {}),
        ('<rootfile full-path="/OEBPS/book.opf"/>', {}),
        (
            '<rootfile full-path="book.pdf" media-type="application/pdf"/><rootfile '
            'full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/>',
            {},
        ),
        ('<rootfile full-path="OEBPS/book.opf" xmlns=""/>', {"xmlns": ""}),
    ],
)
def test_a_package_is_found_as_programs_name_it(root: str, package: dict[str, str]) -> None:
    container = f'<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">{root}</container>'
    body = book([ONE, TWO, THREE], others={"META-INF/container.xml": container}, **package)
    assert read(body).markdown == LISTED


def test_items_of_the_spine_that_are_no_text_are_named_too() -> None:
    """They are in no text, whether they are pictures, missing, or of a type that is not read."""
    more = (
        '<item id="x" href="p.svg" media-type="image/svg+xml"/><item id="y" href="lost.xhtml" '
        'media-type="application/xhtml+xml; charset=utf-8"/>'
        '<item id="z" href="d.xml" media-type="application/xml"/>'
    )
    body = book([ONE, TWO, THREE], others={"OEBPS/p.svg": "<svg/>", "OEBPS/d.xml": ONE}, more=more)
    found = read(body)
    assert found.markdown == LISTED
    assert found.notes == ("Chapters without text: 3 of 6 (p.svg, lost.xhtml, d.xml)",)


def test_all_of_a_chapter_is_text() -> None:
    """No site is around it: what is boilerplate of a web page is a footnote or an epigraph here."""
    one = chapter(
        '<header><p>An epigraph.</p></header><main><p>Main text.</p></main><aside epub:type="footnote" '
        'xmlns:epub="http://www.idpf.org/2007/ops"><p>A footnote.</p></aside><div class="sidebar">A box.'
        '</div><div hidden="">Unseen.</div><footer>The end.</footer>'
    )
    assert read(book([one])).markdown == "An epigraph.\n\nMain text.\n\nA footnote.\n\nA box.\n\nThe end."


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_a_chapter_is_in_the_charset_that_it_says(encoding: str) -> None:
    one = chapter("<h1>Pr\u00e9face</h1>").replace("utf-8", encoding).encode(encoding)
    assert read(book([one])).markdown == "# Pr\u00e9face"


def test_a_book_of_four_thousand_chapters_is_read_and_a_longer_one_refused() -> None:
    chapters = [chapter(f"<p>{at}</p>") for at in range(4_000)]
    assert read(book(chapters)).markdown.split()[-1] == "3999"
    with pytest.raises(PermanentError) as caught:
        read(book(["x"] * 5_001))
    assert caught.value.code == "content_too_large"


def test_a_book_with_sizes_of_64_bits_is_read() -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(book([ONE, TWO, THREE]))) as source, zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            with target.open(name, "w", force_zip64=True) as part:
                part.write(source.read(name))
    assert read(made.getvalue()).markdown == LISTED


def test_the_process_that_reads_a_book_reports_its_notes() -> None:
    body = book([ONE, chapter("")])
    found = ProcessIsolation().extract(RawContent(body, Kind.EPUB), timeout_s=60)
    assert found.notes == ("Chapters without text: 1 of 2 (c2.xhtml)",)


def test_encrypted_chapters_are_refused_and_encrypted_fonts_are_not() -> None:
    for part in ("OEBPS/c2.xhtml", "/OEBPS/c2.xhtml", "./OEBPS/c%32.xhtml"):
        body = book([ONE, b"\x93\x01\xfe"], others={"META-INF/encryption.xml": _encryption(part)})
        with pytest.raises(PermanentError, match="chapters are encrypted") as caught:
            read(body)
        assert caught.value.code == "parse_error"
    fonts = read(book([ONE], others={"META-INF/encryption.xml": _encryption("OEBPS/fonts/a.otf")}))
    assert fonts.markdown == "# Chapter one\n\nText of one."


def _encryption(part: str) -> str:
    return (
        '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><e:EncryptedData '
        'xmlns:e="http://www.w3.org/2001/04/xmlenc#"><e:CipherData>'
        f'<e:CipherReference URI="{part}"/></e:CipherData></e:EncryptedData></encryption>'
    )


def test_the_book_of_another_program_is_read_as_before() -> None:
    assert "The ice breaks." in read((FILES / "year.epub").read_bytes()).markdown

"""Text that names no charset: the decoded text is the one that was written."""

from __future__ import annotations

from collections import defaultdict
from html import escape

import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.scraper.extract.content import Kind, RawContent, extract
from indexmill.scraper.extract.text import decode
from tests.support.charset_texts import CharsetText, held_out_texts, tuning_texts

TEXTS = [*tuning_texts(), *held_out_texts()]
JAPANESE = "図書館は水曜日に休館します。本は月曜日までに返却してください。"
RUSSIAN = "Библиотека будет закрыта в среду. Верните книги не позднее понедельника."


def page(text: CharsetText) -> str:
    """Return a page of the text, with much markup in ASCII before it."""
    lang = f' lang="{text.lang}"' if text.lang else ""
    script = "<script>var a = 'harbour'; // nothing but letters of English\n</script>" * 500
    return f"<html{lang}><head>{script}</head><body><p>{escape(text.text)}</p></body></html>"


def is_read(text: CharsetText, *, markup: bool) -> bool:
    """Return whether the decoded text is equal, alone or in a page."""
    if not markup:
        return decode(text.encoded, None) == text.text
    return decode(page(text).encode(text.encoding), None, markup=True) == page(text)


@pytest.mark.parametrize("markup", [False, True], ids=["text", "page"])
def test_undeclared_text_is_decoded_as_it_was_written(markup: bool) -> None:
    read = {id(text): is_read(text, markup=markup) for text in TEXTS}
    wrong = [(text.encoding, text.language, len(text.text)) for text in TEXTS if not read[id(text)]]
    pairs: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for text in TEXTS:
        pairs[text.encoding, text.language].append(read[id(text)])
    assert len(pairs) >= 25
    assert all(sum(found) >= 7 for found in pairs.values()), wrong
    for half in (False, True):
        texts = [text for text in TEXTS if text.held_out is half]
        short = [read[id(text)] for text in texts if len(text.text) <= 200]
        assert sum(read[id(text)] for text in texts) >= 0.95 * len(texts), wrong
        assert sum(short) >= 0.9 * len(short), wrong


@pytest.mark.parametrize("charset", ["euc_jp", "iso2022_jp", "shift_jis"])
def test_japanese_is_known_by_what_is_valid(charset: str) -> None:
    for text in (
        JAPANESE,
        JAPANESE[:14],
        JAPANESE * 500,
        "".join(f"<li>{JAPANESE}</li>\n" for _ in range(900)),
    ):
        assert decode(text.encode(charset), None, markup=True) == text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "It\u2019s 18 \u00b0C in the water, and 21 \u00b0C in the air.",
            "5\u00bd inches \u00d7 3 inches",
            "Acme\u00ae \u2013 60 m\u00b2",
        ),
        *(
            "d\u00e9j\u00e0 vu",
            "Entry costs 5 \u20ac, children \u00a32.50.",
            "\u201cThe quay\u201d \u00a9 2024. " * 40,
        ),
        "The quay is open on weekdays from nine to five, and closed whenever the wind blows. " * 5
        + "El Ni\u00f1o",
    ],
)
def test_english_with_few_signs_or_foreign_words_is_western(text: str) -> None:
    assert decode(text.encode("cp1252"), None) == text


def test_ascii_with_escapes_is_no_japanese() -> None:
    colored = "\x1b[31mred\x1b[0m and \x1b$ alone"
    assert decode(colored.encode(), None) == colored


def test_damaged_utf_8_stays_utf_8() -> None:
    body = RUSSIAN.encode() * 3 + b"\xff" + RUSSIAN.encode()
    assert decode(body, None) == RUSSIAN * 3 + "\ufffd" + RUSSIAN


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.TEXT, RUSSIAN.encode("cp1251")),
        (Kind.MARKDOWN, f"# {RUSSIAN}".encode("cp1251")),
        (Kind.HTML, f"<main><p>{RUSSIAN}</p></main>{'<br>' * 999}".encode("koi8-r")),
        (Kind.XHTML, f"<html><body><script/><p>{RUSSIAN}</p></body></html>".encode("koi8-r")),
        (Kind.CSV, RUSSIAN.replace(" ", ",").encode("cp1251")),
    ],
)
def test_a_text_that_is_mostly_unreadable_is_refused_with_its_charset(kind: Kind, body: bytes) -> None:
    with pytest.raises(PermanentError, match="not in its charset, utf-8") as caught:
        extract(RawContent(body, kind, "utf-8"))
    assert caught.value.code == "parse_error"


def test_a_meta_element_that_is_wrong_is_named() -> None:
    body = f'<meta charset="euc-jp"><p>{RUSSIAN}</p>'.encode("cp1251")
    with pytest.raises(PermanentError, match="euc_jp"):
        extract(RawContent(body, Kind.HTML))


def test_some_damage_and_replacement_characters_of_the_text_itself_are_kept() -> None:
    assert (
        extract(RawContent(b"nine of ten words \xff can be read", Kind.TEXT, "utf-8")).markdown.count(
            "\ufffd"
        )
        == 1
    )
    shown = "\ufffd\ufffd\ufffd means that"
    assert extract(RawContent(shown.encode(), Kind.TEXT, "utf-8")).markdown == shown


def test_the_xml_declaration_of_a_feed_names_its_charset() -> None:
    feed = '<?xml version="1.0" encoding="windows-1250"?><x><title>Pošta</title><p>žluť</p></x>'
    assert "žluť" in extract(RawContent(feed.encode("cp1250"), Kind.XML)).markdown

"""XHTML, which an HTML parser reads otherwise: pages served as such, and what it costs to rewrite them."""

from __future__ import annotations

import pytest

from indexmill.scraper.extract.content import Extracted, Kind, RawContent, Wanted, extract
from indexmill.scraper.extract.html import read_html
from indexmill.scraper.extract.xhtml import as_html

XMLNS = 'xmlns="http://www.w3.org/1999/xhtml"'
LONG = "The harbour authority publishes the depth of each berth once a year, after the spring survey."


def page(body: str, head: str = "<title>T</title>", kind: Kind = Kind.XHTML, **wanted: bool) -> Extracted:
    markup = (
        f'<?xml version="1.0"?>\n<!DOCTYPE html>\n<html {XMLNS}><head>{head}</head><body>{body}</body></html>'
    )
    return extract(RawContent(markup.encode(), kind, wanted=Wanted(**wanted)))


@pytest.mark.parametrize(
    "empty",
    [
        '<script src="a.js"/>',
        '<script type="text/javascript" src="a.js" />',
        "<script\n  src='a>b.js'\n/>",
        "<style/>",
        '<iframe src="x"/>',
        "<textarea/>",
        '<select name="q"/>',
        "<noscript/>",
        '<div class="modal"/>',
        "<title/>",
        "<nav/>",
        "<footer/>",
        "<dialog/>",
        "<button/>",
        "<svg:script xmlns:svg='http://www.w3.org/2000/svg'/>",
        "<svg xmlns='http://www.w3.org/2000/svg'><title/><path d='M0 0'/></svg>",
        "<object data='a.bin'/>",
        "<video src='a.webm'/>",
        "<noframes/>",
        "<xmp/>",
    ],
)
def test_an_empty_element_swallows_nothing(empty: str) -> None:
    found = page(f"<h1>Berths</h1>{empty}<p>{LONG}</p>")
    assert found.markdown == f"# Berths\n\n{LONG}"


@pytest.mark.parametrize(
    "head", ["<title/>", "<script src='a.js'/>", "<style/>", "<meta charset='utf-8'/><style/>"]
)
def test_an_empty_element_of_the_head_swallows_no_page(head: str) -> None:
    assert page(f"<h1>Berths</h1><p>{LONG}</p>", head).markdown == f"# Berths\n\n{LONG}"


def test_as_html_a_page_is_read_as_browsers_read_it() -> None:
    found = page(f"<h1>Berths</h1><script/><p>{LONG}</p>", kind=Kind.HTML)
    assert found.markdown == "# Berths"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>one<br/>two</p><hr/><p>three</p>", "one\ntwo\n\n---\n\nthree"),
        ("<p>5 &lt; 6 &amp; a&nbsp;b &eacute;&#233;</p>", "5 < 6 & a b \u00e9\u00e9"),
        ("<p><![CDATA[a <b> & c]]></p>", "a <b> & c"),
        ("<p>a<![CDATA[]]>b</p>", "ab"),
        ("<!-- <p/> <![CDATA[ --><p>after</p><!-- ]]> --><p>end</p>", "after\n\nend"),
        ("<!--> <p>unseen</p> --><p>seen</p>", "seen"),
        ("<p>open<p>and open", "open\n\nand open"),
        ("<ul><li/><li>b</li></ul>", "-\n- b"),
        ("<script><![CDATA[ if (a < b) document.write('</script>'); ]]></script><p>after</p>", "after"),
        ("<script>//<![CDATA[\nx = '<p>';\n//]]></script><p>after</p>", "after"),
        ("<style><![CDATA[ a { content: '</style>' } ]]></style><p>after</p>", "after"),
        ("<p title=\"a /> b\"/><p data-x='<![CDATA['>kept</p>", "kept"),
        ("<p data-x='<![CDATA['>kept</p><p><![CDATA[and this]]></p>", "kept\n\nand this"),
        ("<p title='a > <!--'>kept</p><p>and</p><!-- <p>not</p> --><p>this</p>", "kept\n\nand\n\nthis"),
        ("<p title='<script>'>kept</p><script>x()</script><p>and this</p>", "kept\n\nand this"),
        ("<script><![CDATA[ a = '<!--<script>'; ]]></script><p>after</p><script/><p>end</p>", "after\n\nend"),
        ("<p><![CDATA[a <![CDATA[ b ]]> c <![CDATA[]]]]><![CDATA[>]]></p>", "a <![CDATA[ b c ]]>"),
        ("<p>one<br></br>two</p><hr></hr><p>three</p>", "one\ntwo\n\n---\n\nthree"),
        ("<pre><![CDATA[if (a<b) {\n  x();\n}]]></pre>", "```\nif (a<b) {\nx();\n}\n```"),
        ("<?php echo 'a > b' ?><p>after</p><?x?>", "after"),
        ('<p><a id="p1"/>Page one <a id="p2"/>and <span/>two</p>', "Page one and two"),
        (
            "<table><tr><td/><td>b</td></tr><tr><td>c</td><td/></tr></table>",
            "| | b |\n| --- | --- |\n| c | |",
        ),
        ("<p>no end <![CDATA[of <b>it</b></p><p>rest</p>", "no end it\n\nrest"),
        ("<p>a</p><script async src='x'/><p>b</p>", "a\n\nb"),
        ("<p id=x/>a<p>b", "a\n\nb"),
    ],
)
def test_xhtml_is_read_with_all_of_its_text(body: str, text: str) -> None:
    lines = page(body).markdown.replace("\\", "").split("\n")
    assert [" ".join(line.split()) for line in lines] == text.split("\n")


def test_a_prefix_of_a_known_namespace_counts_for_nothing() -> None:
    markup = """<?xml version='1.0'?><h:html xmlns:h="http://www.w3.org/1999/xhtml"
        xmlns:o='urn:other'><h:head><h:title>Berths</h:title><h:script/></h:head><h:body><h:h1>Depths</h:h1>
        <h:p>Berth <h:em>one</h:em><h:br/>nine <o:mark/>metres</h:p><h:script>//</h:script><h:p>End</h:p>
        </h:body></h:html>"""
    found = extract(RawContent(markup.encode(), Kind.XHTML))
    assert (found.title, found.markdown) == ("Berths", "# Depths\n\nBerth *one*\nnine metres\n\nEnd")


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://127.0.0.1:1/xhtml11.dtd">',
        '<!DOCTYPE html [ <!ENTITY port "Harlingen"> <!ELEMENT x ANY> ]>',
        """<!DOCTYPE html [<!ENTITY a "]>"> <!-- don't ]> "--> <?x ]> ?> <!ENTITY b ']>'> ] >""",
        '<!DOCTYPE html SYSTEM "file:///etc/passwd" [<!ENTITY port SYSTEM "file:///etc/passwd">]  >',
    ],
)
def test_no_declaration_is_loaded_or_shown(doctype: str) -> None:
    markup = f"{doctype}<html {XMLNS}><body><p>Depth at &port;<br/>today</p></body></html>"
    assert extract(RawContent(markup.encode(), Kind.XHTML)).markdown == "Depth at &port;\ntoday"


def test_links_language_and_metadata_are_those_of_the_whole_page() -> None:
    head = """<script type="application/ld+json"><![CDATA[
        {"@type": "Article", "datePublished": "2026-01-02", "author": "A & B"}
        ]]></script><script src="a.js"/>"""
    body = "<script/><p>x <a href='/b'/><a href='/c'>c</a></p>"
    markup = f"<html {XMLNS} xml:lang='nl'><head>{head}</head><body>{body}</body></html>"
    found = extract(RawContent(markup.encode(), Kind.XHTML, wanted=Wanted(details=True, links=True)))
    assert (found.links, found.language) == (("/b", "/c"), "nl")
    assert found.metadata == {"published": "2026-01-02", "author": "A & B"}


def test_the_xml_declaration_names_the_charset() -> None:
    said = "<?xml version='1.0' encoding='iso-8859-2'?>"
    markup = f"{said}<html {XMLNS}><body><p>Zażółć gęślą jaźń<br/></p></body></html>"
    found = extract(RawContent(markup.encode("iso-8859-2"), Kind.XHTML))
    assert found.markdown == "Zażółć gęślą jaźń"


@pytest.mark.parametrize("markup", ["<p>a<br>b</p>", "", "<p>a > b</p>", "<!-- <p -->", "words"])
def test_what_both_read_alike_is_returned_as_it_is(markup: str) -> None:
    assert as_html(markup) is markup


@pytest.mark.parametrize(
    "part",
    [
        *("<![CDATA[", "<!--", "<?", "<!DOCTYPE [", "<script>", "<script/>", "<script><![CDATA[", "<a b='"),
        *('<a b="', "<a ", "<a b", "<a/>", "<h:", "<a b = ", "]]>", "<script><![CDATA[]]>", "xmlns:a=' "),
        *(
            "<!DOCTYPE x [ ]]] ",
            '<!DOCTYPE x [ "',
            "<!DOCTYPE x [<!-- ",
            "<p a='<!--",
            "<a " + "b " * 40,
            " xmlns:h='http://www.w3.org/1999/xhtml'",
        ),
    ],
)
def test_a_megabyte_of_what_has_no_end_is_read_at_once(part: str) -> None:
    markup = "<p/>" + part * (1_000_000 // len(part))
    assert as_html(markup).startswith("<p></p>")


def test_rewritten_pages_are_no_longer_than_twice_the_page() -> None:
    markup = "<abcdefgh/>" * 1_000
    assert len(as_html(markup)) < 2.5 * len(markup)
    assert read_html(as_html(markup)).markdown == ""

"""XHTML as HTML has the text that an XML parser finds in it."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from defusedxml.ElementTree import fromstring
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from indexmill.scraper.extract.xhtml import as_html

SPACE = "http://www.w3.org/1999/xhtml"
UNSEEN = ("script", "style")
LEAVES = st.sampled_from(
    [
        "word ", "&lt;b&gt;", "&amp;amp;", "a > b", "]] >", " ' ", ' " ', "&#233;", "\u00e9", "x/", "/ ",
        "-- ", "=", "<![CDATA[a<b]]>", "<![CDATA[</p>]]>", "<![CDATA[<X:script/>]]>", "<![CDATA[&amp;]]>",
        "<![CDATA[]]]]>", "<![CDATA[<!-- x -->]]>", "<![CDATA[<![CDATA[]]>", "<!-- <p/> -->",
        "<!-- <![CDATA[ -->", "<!-- > -->", "<!--<script>-->", "<!-- ]]> -->", "<?php a > b?>",
        "<?x <p/>?>", "<X:br/>", "<X:hr />", "<X:img src='a>b'/>", "<X:br></X:br>", '<X:img alt="/>"/>',
        "<X:script/>", "<X:style />", "<X:script src='/>'/>",
        "<X:script><![CDATA[ </script> <!--<script> ]]></X:script>", "<X:script>a &lt; b</X:script>",
        "<X:style><!-- x --></X:style>",
    ]
)  # fmt: skip
TAGS = st.sampled_from(["div", "span", "b", "em", "section", "article", "blockquote"])
HAS = st.sampled_from(
    ["", ' class="a>b"', " title='x/>y'", ' d="&lt;!--"', ' a="&quot;"', "\n id='q'", " xml:lang='en'"]
)


def _element(tag: str, has: str, inside: list[str]) -> str:
    return f"<X:{tag}{has}>{''.join(inside)}</X:{tag}>" if inside else f"<X:{tag}{has}/>"


NODES = st.recursive(
    LEAVES, lambda nodes: st.builds(_element, TAGS, HAS, st.lists(nodes, max_size=4)), max_leaves=20
)


@given(st.lists(NODES, max_size=5).map("".join), st.sampled_from(["", "h:"]))
@settings(max_examples=300, deadline=None)
def test_no_text_of_xhtml_is_lost_or_added(body: str, prefix: str) -> None:
    name = "xmlns:h" if prefix else "xmlns"
    doctype = """<!DOCTYPE html [<!ENTITY q "]>"> <!-- ' ]> -->]>"""
    page = f"<X:html {name}='{SPACE}'><X:head><X:title/></X:head><X:body>{body}</X:body></X:html>"
    markup = f"<?xml version='1.0'?>{doctype}\n{page}".replace("X:", prefix)
    root = fromstring(markup, forbid_entities=False)
    tree = LexborHTMLParser(as_html(markup))
    for node in tree.css(", ".join(UNSEEN)):
        node.decompose()
    assert tree.body is not None
    assert "".join(tree.body.text().split()) == "".join(_text(root.find(f"{{{SPACE}}}body")).split())


def _text(element: Element) -> str:
    if not isinstance(element.tag, str) or element.tag.rpartition("}")[2] in UNSEEN:
        return ""
    return (element.text or "") + "".join(_text(child) + (child.tail or "") for child in element)

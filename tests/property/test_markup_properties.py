"""Text that a page shows is text in its Markdown, in pages of every structure."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.scraper.extract.html import read_html
from tests.support.live_markup import live_markup

IMG = "&lt;img src=x onerror=alert(1)&gt;"
TEXTS = st.sampled_from(
    [
        IMG, IMG, "&lt;b&gt;", "&lt;javascript:x&gt;", "&lt;a@b.c&gt;", "&lt;", "&gt;", "<", "word ", "x",
        "\u00e9", "[a](javascript:x)", "![a](x)", "[a]", "[a]:", "[a]: javascript:x", "[b\\]c]: x", "[a][b]",
        "[b]:x", "[", "]", "](x)", "(x)", "!", ":", "\\", "\\", "`", "`", "``", "```", "~", "~~~", "|", " | ",
        "--- | ---", "| --- | --- |", "<br>", "<br>", "\n", "\n\n", " ", "\t", "- ", "> ", "1. ", "# ",
        "    ", "===", "*", "_", "**", "&nbsp;", "&#8203;", "&#173;", "&#xfdd0;", "&#xfdd1;", "&amp;lt;",
        "<img alt=x>", "<hr>",
    ]
)  # fmt: skip
TAGS = st.sampled_from(
    [
        "p", "p", "li", "ul", "ol", "dl", "dt", "dd", "blockquote", "h2", "div", "figure", "figcaption",
        "details", "summary", "table", "tr", "td", "th", "caption", "pre", "pre", "code", "code", "kbd",
        "samp", "tt", "xmp", "b", "em", "s", "q", "mark", "sup", "span", "label", "ruby", "rt", "math",
        "a href=x", "var", "font", "abbr title='`&lt;b&gt;`'", "pre class='language-a`b'",
        "code class='language-|'",
    ]
)  # fmt: skip


def _element(tag: str, inside: list[str]) -> str:
    return f"<{tag}>{''.join(inside)}</{tag.split(maxsplit=1)[0]}>"


NODES = st.recursive(
    TEXTS, lambda nodes: st.builds(_element, TAGS, st.lists(nodes, min_size=1, max_size=5)), max_leaves=25
)


@given(st.lists(NODES, min_size=1, max_size=6).map("".join))
@settings(max_examples=300, deadline=None)
def test_no_text_of_a_page_is_live_in_its_markdown(body: str) -> None:
    html = f"<!doctype html><html><body><main>{body}<p>{IMG}</p></main></body></html>"
    assert live_markup(read_html(html).markdown) == []

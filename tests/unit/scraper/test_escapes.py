"""Text of a page that looks like markup, in the Markdown that renderers would make of it."""

from __future__ import annotations

import time

import pytest

from indexmill.scraper.extract.content import Kind, RawContent, extract
from indexmill.scraper.extract.html import read_html
from tests.support.books import book, chapter
from tests.support.live_markup import live_markup

IMG = "&lt;img src=x onerror=alert(1)&gt;"
LINK = "[click](javascript:alert(1))"


def text_of(body: str) -> str:
    return read_html(f"<!doctype html><html><body><main>{body}</main></body></html>").markdown


def test_what_a_renderer_makes_live_is_seen() -> None:
    assert live_markup("<b>x</b>") == ["html_inline <b>", "html_inline </b>"] * 2
    assert live_markup("a | b\n--- | ---\n`x | <b>`") == ["html_inline <b>"]
    assert live_markup("[a]: javascript:x\n\n[a]") == ["link_open "] * 2
    assert live_markup("\\<b> `<b>` \\[a](x)\n\n```\n<b>\n```") == []


@pytest.mark.parametrize(
    "body",
    [
        # A backtick after a backslash, in place of another character, after one that is not seen.
        f"<p>\\` <code>{IMG}</code></p>",
        f"<p>\\&#8203;<code>{IMG}</code></p>",
        f"<p>a &#xfdd1; <code>&#xfdd1;{IMG}</code> &#xfdd0;` <code>{LINK}</code></p>",
        f"<p><samp>&#173;`{IMG}</samp></p>",
        f"<pre>\n    `&#173;``\n</pre><p>{IMG} {LINK}</p>",
        f"<p><code>{IMG}`</code><code>b</code></p>",
        f"<p><code>&#173;</code> <code>{IMG}</code></p>",
        # Tables and lists that the page writes as text end code within them.
        f"<p>a | b<br>--- | ---<br><code>x | {IMG}</code></p>",
        f"<p>| a |<br>| :-: |<br><code>| {IMG} | x</code></p>",
        f"<p>| a | b |<br>|---|---|<br>| <code>x | {LINK}</code></p>",
        f"<p><code>x<br>- {IMG}</code></p>",
        f"<ul><li><code>a</code>` x<li>{IMG} ` <code>b</code></ul>",
        # Fences that are none, or not where they seem to be.
        f"<ul><li><pre class='language-a`b'> </pre></ul><p>{IMG}</p>",
        f"<pre class='language-a`b'>x\n\ny</pre><p>{IMG}</p>",
        f"<pre><code class='language-```'>x</code></pre><p>{IMG}</p>",
        f"<ul><li><s><pre> </pre></s><li>{IMG}</ul>",
        f"<b><pre>x\n\n{IMG}</pre></b><p>{IMG}</p>",
        f"<details><summary><pre>{IMG}</pre></summary>{LINK}</details>",
        f"<p>!<label><pre>|</pre></label>```</p><p>{LINK}</p>",
        f"<pre><blockquote>{IMG}\n\n{LINK}</blockquote></pre><p>{IMG}</p>",
        f"<ul><li><h2>=</h2>1. <pre>{LINK}\n</pre></ul>",
        f"<p>a<br>~~~</p><pre>\n~~~\n{IMG}\n</pre>",
        f"<ul><li><pre></pre><s>~</s></ul><pre>\n~~~~~\n{IMG}\n</pre>",
        f"<code><dl><dd>*```{IMG}</dl></code>",
        # Links, targets of links, autolinks.
        "<p>[a<code>`</code>](javascript:x) [b]<b></b>(javascript:x)</p>",
        "<p>[a\\<b></b>](javascript:x)](javascript:x)</p>",
        "<p>[<code>]:javascript:alert(1)//</code></p><p>[foo][<code>]</code></p>",
        "<p>&gt; - [d<br>d]: javascript:x</p><p>[d d]</p>",
        "<p>&lt;javascript:alert(1)&gt; &lt;https://x&gt; ![a][b]</p><p>[b]: x</p>",
        # Places other than paragraphs.
        f"<table><caption>{IMG}<tr><th>{IMG}<th>{LINK}<tr><td><code>a|{IMG}</code><td>`</table>",
        f"<h2>{IMG} {LINK}</h2><h3><code>{IMG}</code>` {IMG}</h3>",
        f"<dl><dt>{IMG}<dd>{LINK}</dl><figure><figcaption>{IMG} {LINK}</figcaption></figure>",
        f"<a href='javascript:x' title='<img>'>{LINK}</a><img alt='{IMG}' src=x>",
        f"<abbr title='{IMG}`'>a</abbr> <abbr title='{LINK}'>b</abbr>",
        f"<ruby>a<rt>{IMG}</rt></ruby><q>{LINK}</q><math><mtext>{IMG}</mtext></math><xmp><img src=x></xmp>",
        f"<p>{'<div>' * 300}` <code>`</code> {IMG} - ```<pre>```\n{IMG}</pre>{LINK}</p>",
    ],
)
def test_text_of_a_page_is_never_live(body: str) -> None:
    assert live_markup(text_of(body)) == []


def test_what_a_feed_or_a_book_shows_is_never_live() -> None:
    said = f"{IMG} {LINK} ` <![CDATA[`{LINK}]]>"
    text = IMG.replace("&", "&amp;")
    item = f"<title>{said}</title><pubDate>{said}</pubDate><description>{text}</description>"
    feed = f"<rss><channel><title>{said}</title><item>{item}</item></channel></rss>"
    for body, kind in ((feed.encode(), Kind.XML), (book([chapter(f"<h1>{said}</h1>")]), Kind.EPUB)):
        found = extract(RawContent(body, kind)).markdown
        assert "alert(1)" in found
        assert live_markup(found) == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>\\` &lt;b></p>", "\\\\\\` \\<b>"),
        (
            "<ul><li><pre>a &lt;b>\n\n&lt;c> [d](e)</pre>f</ul>",
            "- ```\n  a <b>\n\n  <c> [d](e)\n  ```\n\n  f",
        ),
        ("<blockquote><pre>a &lt;b>\n\n&lt;c></pre></blockquote>", "> ```\n> a <b>\n>\n> <c>\n> ```"),
        ("<p><b><pre>a\n&lt;b></pre></b>", "```\na\n<b>\n```"),
        ("<code><pre>a\n  &lt;b></pre></code>", "```\na\n  <b>\n```"),
        ("<pre class='language-c`'>a</pre>", "```\na\n```"),
        ("<p><code>a</code> or <code>b|&lt;c></code> ` &lt;d></p>", "`a` or `b|<c>` \\` \\<d>"),
        ("<table><tr><th>a<th>b<tr><td><code>x|&lt;b></code><td>y</table>", "`x\\|<b>`"),
        ("<p>x[1] &lt;b></p><p>[1] note</p>", "x[1] \\<b>\n\n[1] note"),
    ],
)
def test_code_and_words_stay_as_they_are(body: str, text: str) -> None:
    assert text in text_of(body)


def test_what_the_converter_fails_at_keeps_its_words() -> None:
    found = text_of("<li><pre></pre><s>~</s><sub>\u00e9</sub>] the harbour")
    assert "the harbour" in found
    assert "\u00e9" in found


@pytest.mark.shows("B61")
@pytest.mark.parametrize(
    "part", ["\\", "\\[", "`", "[", "](", "[a]:\n", "<code>`</code>", "|-\n", "- ```\n", "~~~"]
)
def test_escapes_take_linear_time(part: str) -> None:
    body = f"<p>&lt;b> {part * (200_000 // len(part))} x</p>"
    started = time.process_time()
    assert text_of(body)
    assert time.process_time() - started < 5.0

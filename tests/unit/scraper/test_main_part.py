"""The main part of a page: where it is, and what in it is no content."""

from __future__ import annotations

import time

import pytest

from indexmill.scraper.extract.html import read_html

WORDS = "<p>The wheel turns at six knots, and the rye is ground between two stones of sandstone.</p>"
TEXT = "The wheel turns at six knots, and the rye is ground between two stones of sandstone."


def text_of(body: str) -> str:
    return read_html(f"<!doctype html><html><head><title>T</title></head><body>{body}</body></html>").markdown


@pytest.mark.parametrize(
    "body",
    [
        f"<div>Menu</div><main><p>Path</p><article><h1>H</h1>{WORDS}</article><p>More</p></main>",
        f"<p>Top</p><article><h1>H</h1>{WORDS}</article><p>Next</p>",
        f"<a class='skip-link' href='#s'>Skip</a><p>Top</p><div id=s><h1>H</h1>{WORDS}</div><p>Next</p>",
        f"<ul class=skiplinks><li><a href='#menu'>Menu</a><li><a href='#s'>Text</a></ul>"
        f"<p id=menu>Top</p><div id=s><h1>H</h1>{WORDS}</div>",
        f"<p>Top</p><div id=content><h1>H</h1>{WORDS}</div><p>Next</p>",
        f"<p>Top</p><div itemprop=articleBody><h1>H</h1>{WORDS}</div><p>Next</p>",
    ],
)
def test_a_page_says_where_its_main_part_is(body: str) -> None:
    assert text_of(body) == f"# H\n\n{TEXT}"


@pytest.mark.parametrize(
    "body",
    [
        f"<main><h1>H</h1>{WORDS}<article>Card</article></main>",
        f"<main>{WORDS}<article>One</article><article>Two</article></main>",
        f"<h1>H</h1><div id=content>Some</div>{WORDS}",
        f"<a class=skip href='#s'></a><h1>H</h1><div id=s>Some</div>{WORDS}",
        f"<a class=skip href='#no:where(x)'></a>{WORDS}",
    ],
)
def test_what_has_neither_the_heading_nor_most_of_the_text_is_not_the_main_part(body: str) -> None:
    assert TEXT in text_of(body)


@pytest.mark.parametrize(
    "noise",
    [
        "<div class='sd-block sharedaddy'>no</div>",
        "<ul class=social-share><li>no</li></ul>",
        "<div class=PostRelated_root__a1>no</div>",
        "<section class='comments-area'>no</section>",
        "<div class=comment>no</div>",
        "<div id=comments>no</div>",
        "<div class=newsletter-box>no</div>",
        "<div class=ad-slot>no</div>",
        "<p class=byline>no</p>",
        "<ol class=breadcrumb><li>no</li></ol>",
        "<table class=noprint><tr><td>no</td></tr></table>",
        "<div class=navheader><table><tr><td>no</td></tr></table></div>",
        "<div id=my-cookie-bar>no</div>",
        "<div role=alertdialog>no</div>",
        "<div class=sidebar><div class=related><nav>no</nav></div></div>",
        "<h2>yes<span class=mw-editsection>no</span></h2>",
        "<aside>no</aside>",
    ],
)
@pytest.mark.parametrize("landmark", ["main", "div"])
def test_boilerplate_goes(noise: str, landmark: str) -> None:
    assert "no" not in text_of(f"<{landmark}><h1>H</h1>{WORDS}{noise}</{landmark}>").replace("knots", "")


@pytest.mark.parametrize(
    "content",
    [
        "<section id=comments><h2>Comments</h2><p>kept</p></section>",
        "<div class=section id=related><h2>Related work</h2><p>kept</p></div>",
        "<pre><span class=comment># kept</span></pre>",
        "<aside class='footnote brackets'>kept</aside>",
        "<aside class=Callout_root__c9>kept</aside>",
        "<div class=commentary>kept</div>",
        "<div class=shareholders>kept</div>",
        "<div class=additions>kept</div>",
        "<div class='with-sidebar'><h1>H</h1><p>kept</p></div>",
        f"<div class='related-content'>{WORDS * 4}<p>kept</p></div>",
        "<span class=author-box>kept</span>",
    ],
)
def test_content_with_such_a_name_is_kept(content: str) -> None:
    assert "kept" in text_of(f"<main>{WORDS}{content}</main>")


@pytest.mark.parametrize("name", ["class=sidebar", "class=noprint", "aria-hidden=true", "id=comments"])
def test_a_main_part_is_not_its_own_boilerplate(name: str) -> None:
    assert text_of(f"<main {name}>{WORDS}</main>") == TEXT


def test_tables_for_layout_are_taken_apart() -> None:
    data = "<table><tr><th>Part</th><th>Interval</th></tr><tr><td>Hum</td><td>two</td></tr></table>"
    found = text_of(
        "<table><tr><td>Menu</td><td>Links</td></tr>"
        f"<tr><td><h1>H</h1>{WORDS}{data}<pre>a\n b</pre></td></tr></table>"
        "<table role=presentation><tr><td>left</td><td>right</td></tr></table>"
    )
    lines = [line.replace(" ", "") for line in found.split("\n")]
    assert "Menu Links" in found.replace("\n", " ")
    assert {"#H", "|Part|Interval|", "|Hum|two|"} <= set(lines)
    assert "```\na\n b\n```" in found
    assert "leftright" not in lines


def test_a_table_of_data_stays_one() -> None:
    found = text_of("<main><table><tr><td><pre>x</pre></td><td><p>a</p><p>b</p></td></tr></table></main>")
    assert found.count("|") >= 3


def test_two_code_blocks_around_one_text_are_one() -> None:
    assert text_of("<main><pre><pre class=playground><code>let x;</code></pre></pre></main>") == (
        "```\nlet x;\n```"
    )


@pytest.mark.parametrize(
    "body",
    [
        "<div class=comments>x" * 2_500,
        "<div class=comments>x</div>" * 2_500,
        "<table><tr><td><h1>x" * 800,
        "<a class=skip href='#s'>x</a>" * 2_000 + "<div id=s>x</div>",
        "<article>x" * 2_500,
    ],
)
def test_names_without_end_cost_little(body: str) -> None:
    started = time.process_time()
    assert "x" in text_of(body + f"{WORDS}x")
    assert time.process_time() - started < 2.0

"""HTML to Markdown."""

from __future__ import annotations

import pytest

from indexmill.scraper.extract.html import read_html


def page(body: str, head: str = "<title>The title</title>") -> str:
    return f'<!DOCTYPE html><html lang="en-GB"><head>{head}</head><body>{body}</body></html>'


NOISE = """
<header><nav><a href="/">Home</a></nav></header><div id="cookie-banner">We use cookies</div>
<div class="sidebar">Side</div>
"""
END = "<aside>Related</aside><footer>Imprint</footer><script>var x = '<p>no</p>'</script><style>p{}</style>"


@pytest.mark.parametrize("tag", ["main", "article", 'div role="main"'])
def test_the_main_part_is_all_that_is_kept(tag: str) -> None:
    name = tag.partition(" ")[0]
    content = f"<{tag}><h1>Head</h1><p>Some <b>bold</b> <a href='/x'>linked</a> words.</p></{name}>"
    markdown, title, language, *_ = read_html(page(f"{NOISE}<p>Outside</p>{content}{END}"))
    assert markdown == "# Head\n\nSome **bold** linked words."
    assert (title, language) == ("The title", "en-GB")


def test_without_a_landmark_the_body_is_pruned() -> None:
    markdown, *_ = read_html(page(f"{NOISE}<div><h1>Head</h1><p>Words.</p></div>{END}"))
    assert markdown == "# Head\n\nWords."


def test_a_list_of_articles_is_kept_whole() -> None:
    markdown, *_ = read_html(page("<article><p>One</p></article><article><p>Two</p></article>"))
    assert markdown == "One\n\nTwo"


def test_an_empty_main_part_is_not_believed() -> None:
    markdown, *_ = read_html(page("<main></main><div id=app><p>Here it is</p></div>"))
    assert markdown == "Here it is"


def test_headings_code_lists_and_tables_survive() -> None:
    markdown, *_ = read_html(
        page(
            "<main><h2>H</h2><ul><li>a<ul><li>b</li></ul></li></ul><pre><code>x = 1\n  y</code></pre>"
            "<table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table></main>"
        )
    )
    assert "## H" in markdown
    assert "- a\n" in markdown
    assert "```\nx = 1\n  y\n```" in markdown
    assert "| 1 | 2 |" in markdown.replace("  ", " ")


@pytest.mark.parametrize(
    "hidden",
    [
        "<p hidden>no</p>",
        "<p aria-hidden=true>no</p>",
        '<p style="color:red;display:none">no</p>',
        '<p style="DISPLAY: none">no</p>',
        "<noscript>no</noscript>",
        "<template>no</template>",
        "<svg><text>no</text></svg>",
        '<a class="headerlink">no</a>',
        "<button>no</button>",
        "<!-- no -->",
    ],
)
def test_hidden_and_technical_parts_go(hidden: str) -> None:
    markdown, *_ = read_html(page(f"<main><p>yes</p>{hidden}</main>"))
    assert markdown == "yes"


@pytest.mark.parametrize(
    "body",
    [
        "",
        " \n ",
        "<script>x</script>",
        "<style>x</style>",
        "<nav>Menu</nav>",
        "<form><label>Password<input type=password></label></form>",
    ],
)
def test_a_page_without_text_has_none(body: str) -> None:
    assert read_html(page(body))[0] == ""


def test_the_title_falls_back_to_the_first_heading() -> None:
    assert read_html(page("<h1>A <i>head</i></h1>", head=""))[1] == "A head"
    assert read_html(page("<p>x</p>", head="<title> </title>"))[1] is None


def test_the_title_of_a_drawing_is_not_the_pages() -> None:
    assert read_html(page("<svg><title>Icon</title></svg><h1>Head</h1>", head=""))[1] == "Head"


def test_an_odd_language_is_none() -> None:
    assert read_html("<html lang='{{ lang }}'><p>x</p>")[2] is None


@pytest.mark.parametrize("html", ["just words", "<p>just words", "<b><p>just words</b>", "</div>just words<"])
def test_broken_markup_keeps_its_words(html: str) -> None:
    assert "just words" in read_html(html)[0]


def test_invisible_characters_do_not_reach_the_text() -> None:
    markdown, title, *_ = read_html(page("<p>pa&#8203;ss&#x202e;</p>", head="<title>T\u202e&#8203;x</title>"))
    assert (markdown, title) == ("pass", "T x")

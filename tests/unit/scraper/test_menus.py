"""Menus of the generators whose pages were read with them: pages of ours in the structure of theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from indexmill.scraper.extract.html import read_html
from tests.support.extraction_quality import words

HARBOUR = (
    "The harbour authority publishes the depth of each berth once a year, after the spring survey has ended.",
    "A pilot is compulsory for vessels of more than forty metres, and for any vessel with dangerous goods.",
    "Dues are paid before departure at the office by the lock, which is open from six to ten in the evening.",
)
TIDES = (
    "High water follows that of the roads by twelve minutes in settled weather, and by more in "
    "westerly gales.",
    "Tables give heights above chart datum; add the correction of the day, which is posted at the lock.",
)
NAMES = (
    "Assertions",
    "Buffers",
    "Child processes",
    "Clusters",
    "Command line",
    "Crypto",
    "Debugger",
    "Events",
)
LIST = "".join(f"<li><a href='{at}.html'>{name}</a></li>" for at, name in enumerate(NAMES))
TEXT = {"harbour": HARBOUR, "tides": TIDES}


def paragraphs(page: str) -> str:
    return "".join(f"<p>{text}</p>" for text in TEXT[page])


def node(page: str) -> str:
    return (
        '<body class="alt apidoc"><div id=content><div id=column2 class=interior><div id=intro><a '
        "href=i>Site</a>"
        f"</div><ul>{LIST}</ul><hr class=line><ul>{LIST}</ul></div><div id=column1 class=interior>"
        "<header class="
        f"header><div class=header-container><h1>Documentation</h1></div><div id=gtoc><ul><li>v18<li class="
        f"picker-header><a href='#'>Contents</a><div class=picker><div class=toc><ul>{LIST}</ul>"
        "</div></div></ul>"
        "</div><hr></header><details id=toc open><summary>Table of contents</summary><ul>"
        f"{LIST}</ul></details>"
        f"<div id=apicontent><h2>{page}<span><a class=mark href='#p'>#</a></span></h2>"
        f"{paragraphs(page)}</div>"
        "</div></div>"
    )


def sqlite(page: str) -> str:
    return (
        "<div class=nosearch><a href=i><img alt=Logo></a><div class='tagline desktoponly'>Deep. "
        "Calm. Open.</div>"
        f"<div class='menu mainmenu'><ul>{LIST}</ul></div><div class='menu submenu' id=submenu><ul>"
        f"{LIST}</ul>"
        f"</div></div><div class=fancy><div class=nosearch><div class=fancy_title>{page}</div><div class="
        "fancy_toc><a>Table Of Contents</a><div id=toc_sub><div class=fancy-toc1><a href='#a'>1. "
        "Introduction"
        f"</a></div></div></div></div>{paragraphs(page)}</div>"
    )


def exim(page: str) -> str:
    turn = '<a class="previous_page" href=a>&lt;-previous</a><a class="next_page" href=b>next-&gt;</a>'
    return (
        f"<h1 id=header><a href=i>Mailer</a></h1><div id=outer><ul id=nav_flow class=nav>{LIST}<li "
        "class=search>"
        f"<form><input type=search></form></ul><div id=inner><div id=content>{turn}<div id=chapter>"
        f"<h2>{page}</h2>"
        f"{paragraphs(page)}</div><a class=toc_page href=i>Table of Contents</a>{turn}</div></div>"
        "<div id=footer>"
        "Website design by someone</div></div>"
    )


def gtk_doc(page: str) -> str:
    icons = "".join(f"<td><a accesskey={key} href=x><img alt={key}></a></td>" for key in "puhn")
    return (
        f"<table class=navigation summary='Navigation header'><tr valign=middle>{icons}<th>"
        "Reference Manual</th>"
        f"</tr></table><h2><span class=refentrytitle>{page}</span></h2>{paragraphs(page)}<table "
        "class=navigation>"
        "<tr><td><a href=p><b>&lt;&lt;&nbsp;Previous part of the manual</b></a><td><a href=n>"
        "Next</a></table>"
    )


def layout_tables(page: str) -> str:
    menu = (
        "<table><tr><td><center><b>{0}</b></center></td></tr><tr><td><form><input name=q></form><ul>"
        "{1}</ul></td>"
        "</tr></table>"
    )
    return (
        "<table width='100%'><tr><td><a href=a><img alt=Logo></a></td><td><table><tr><td><h1>The toolkit</h1>"
        f"<h2>{page}</h2></td></tr></table></td></tr></table><table><tr><td><table><tr><td "
        "width=200><table><tr>"
        f"<td>{menu.format('Main Menu', LIST)}{menu.format('Related links', LIST)}</td></tr></table></td><td>"
        f"<table><tr><td><table><tr><td>{paragraphs(page) * 3}</td></tr></table></td></tr></table></td></tr>"
        "</table></td></tr></table>"
    )


def texinfo(page: str) -> str:
    return (
        "<body lang=en><div class=section><div class=header><p>Next: <a href=n accesskey=n rel=next>"
        "Integer Data "
        "Types</a>, Up: <a href=u accesskey=u rel=up>Numeric Data Types</a> &nbsp; [<a href=c "
        "rel=contents>Contents"
        f"</a>][<a href=i rel=index>Index</a>]</p></div><hr><h4 class=section>{page}</h4>"
        f"{paragraphs(page)}</div>"
        "<hr><div class=header><p>Up: <a href=u>Numeric Data Types</a> &nbsp; [<a href=c "
        "rel=contents>Contents</a>]"
        "[<a href=i rel=index>Index</a>]</p></div>"
    )


PANEL = (
    "<A NAME=t1 HREF=n2.html><IMG ALT=next SRC=n.png></A> <BR><B> Next:</B> <A HREF=n2.html>Berths "
    "and locks</A>"
    " <B> Up:</B> <A HREF=index.html>Handbook of pilots</A> <B> Previous:</B> <A HREF=n0.html>Preface</A><BR>"
)


def latex2html(page: str) -> str:
    return (
        f"<BODY><DIV CLASS=navigation><!--Navigation Panel-->{PANEL}</DIV><!--End of Navigation "
        f"Panel--><H4>{page}"
        f"</H4>{paragraphs(page)}<BR><HR>"
    )


def old_latex2html(page: str) -> str:
    panel = f"<!--Navigation Panel-->{PANEL}<!--End of Navigation Panel-->"
    return f"<BODY>{panel}<H1>{page}</H1>{paragraphs(page)}<HR>{panel}<ADDRESS>2026-11-24</ADDRESS>"


def doxygen(page: str) -> str:
    return (
        "<div style='background:#FFDDDD'>Please help us to know our users by answering the "
        "following survey: <a "
        "href=s>https://forms.example/survey</a></div><div id=top><div id=titlearea><table><tr><td "
        "id=projectlogo>"
        "<img alt=Logo></td><td><div id=projectname>Charts<span id=projectnumber>3.4.0</span></div></td></tr>"
        "</table></div></div><div id=side-nav><div id=nav-tree></div></div><div id=doc-content><div "
        "class=header>"
        "<div class=summary><a href='#a'>List of all members</a> | <a href='#b'>Public Member "
        "Functions</a> | <a "
        "href='#c'>Static Public Member Functions</a></div><div class=headertitle><div class=title>"
        f"{page}</div></div></div><div class=contents>{paragraphs(page)}</div></div><div "
        "id=nav-path class=navpath>"
        "<ul><li class=navelem><a href=x>Charts</a></li><li class=footer>Generated by some tool</li>"
        "</ul></div>"
    )


def mdbook(page: str) -> str:
    return (
        f"<nav id=sidebar class=sidebar><ol class=chapter>{LIST}</ol></nav><div id=menu-bar class='menu-bar'>"
        "<h1 class=menu-title>The Book</h1></div><div id=content class=content><main><h2><a "
        "class=header href='#p'>"
        f"{page}</a></h2>{paragraphs(page)}<pre><pre class=playground><code class='language-rust'>"
        "<span class=boring>"
        "#![allow(unused)]\nfn main() {\n</span>let depth = 4;\n<span class=boring>}\n</span></code>"
        "</pre></pre>"
        "</main><nav class=nav-wrapper><a rel=next href=n>next</a></nav></div>"
    )


def rustdoc(page: str) -> str:
    return (
        f"<nav class=sidebar><ul>{LIST}</ul></nav><main><div class=width-limiter><section "
        "id=main-content><h1 class="
        f"fqn><span class=in-band>{page}</span><span class=out-of-band><a class=srclink href=s>"
        "source</a></span>"
        "</h1><details class=rustdoc-toggle open><summary class=hideme><span>Expand "
        "description</span></summary>"
        f"<div class=docblock>{paragraphs(page)}<div class=example-wrap><pre class=rust><code>let "
        "depth = 4;</code>"
        "</pre><a class=test-arrow href=t>Run</a></div></div></details></section></div></main>"
    )


@pytest.mark.parametrize("page", TEXT)
@pytest.mark.parametrize(
    "generator",
    [
        node,
        sqlite,
        exim,
        gtk_doc,
        layout_tables,
        texinfo,
        latex2html,
        old_latex2html,
        doxygen,
        mdbook,
        rustdoc,
    ],
)
def test_at_most_ten_words_of_a_page_are_of_its_menus(generator: Callable[[str], str], page: str) -> None:
    html = f"<!doctype html><title>T</title>{generator(page)}"
    found = Counter(words(read_html(html).markdown))
    content = Counter(word for text in TEXT[page] for word in words(text))
    beside = found - (Counter({word: 3 * count for word, count in content.items()}) | content)
    assert content - found == Counter()
    assert beside.total() <= 10, beside


def test_a_menu_of_dishes_and_a_page_of_links_are_content() -> None:
    dishes = "<ul class=menu><li>Soup 4.50<li>Fish, <a href=f>fresh</a> 9<li><a href=c>Cod</a> with peas</ul>"
    assert "Cod with peas" in read_html(f"<h1>Today</h1><p>Open at six.</p>{dishes}").markdown
    index = f"<table><tr><td><h1>Index</h1><tr><td><ul>{LIST}</ul></td><td><ul>{LIST}</ul></table>"
    assert read_html(index).markdown.count("Child processes") == 2
    head = (
        "<div class=header><h2>Sea</h2><div class=summary>Gales are expected.</div><a rel=author>A</a></div>"
    )
    assert "Gales are expected." in read_html(f"<p>{HARBOUR[0]}</p>{head}<p>{HARBOUR[1]}</p>").markdown
    columns = f"<div id=column1><h1>Sea</h1>{HARBOUR[0]}</div><div id=column2>{TIDES[0]}</div>"
    assert TIDES[0] in read_html(columns).markdown
    described = "".join(f"<li><a href=x>{name}</a>: {HARBOUR[0]}</li>" for name in NAMES)
    assert read_html(f"<h1>All</h1><ul class=nav>{described}</ul>").markdown.count("survey") == len(NAMES)


def test_comments_of_a_menu_around_other_elements_take_nothing_away() -> None:
    start, end = "<!--Navigation Panel-->", "<!--End of Navigation Panel-->"
    html = f"{start}<p>a<div>b</div></p>{end}<p>c</p>{start}d"
    assert read_html(html).markdown.split() == ["a", "b", "c", "d"]

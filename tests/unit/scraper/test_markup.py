"""Tables, formulas, code and escapes in the Markdown of a page."""

from __future__ import annotations

import pytest
from selectolax.lexbor import LexborHTMLParser

from indexmill.scraper.extract.html import read_html
from indexmill.scraper.extract.tables import fill_spans


def text_of(body: str) -> str:
    return read_html(f"<!doctype html><html><body><main>{body}</main></body></html>").markdown


def rows_of(body: str) -> list[list[str]]:
    """Return the cells of each line of the only table, without the ruler."""
    lines = [line for line in text_of(body).split("\n") if line.startswith("|")]
    return [
        [cell.strip() for cell in line.strip().strip("|").split(" |")] for line in lines if "---" not in line
    ]


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (
            "<tr><th>Port<th>Year<th>Tons<tr><td rowspan=2>Hull<td>2020<td>10<tr><td>2021<td>12",
            [["Port", "Year", "Tons"], ["Hull", "2020", "10"], ["Hull", "2021", "12"]],
        ),
        (
            "<thead><tr><th rowspan=2>Port<th colspan=2>Catch<tr><th>2020<th>2021</thead>"
            "<tr><td>Hull<td>7<td>8",
            [["Port", "Catch", ""], ["Port", "2020", "2021"], ["Hull", "7", "8"]],
        ),
        (
            "<tr><td>a<td rowspan=3>B<td>c<tr><td>d<td>e<tr><td>f<td rowspan=2>G<tr><td>h<td>i",
            [["a", "B", "c"], ["d", "B", "e"], ["f", "B", "G"], ["h", "i", "G"]],
        ),
        (
            "<tr><td>a<td>x<td rowspan=2>B<tr><td>d",
            [["a", "x", "B"], ["d", "", "B"]],
        ),
        (
            "<tbody><tr><td rowspan=9>a<td>b</tbody><tbody><tr><td>c<td>d</tbody>",
            [["a", "b"], ["c", "d"]],
        ),
        (
            "<tbody><tr><td rowspan=0>a<td>b<tr><td>c</tbody><tbody><tr><td>d<td>e</tbody>",
            [["a", "b"], ["a", "c"], ["d", "e"]],
        ),
        (
            "<tr><td>a<td rowspan=3>b<td>c<tr><td colspan=2>d<td>e<tr><td>f<td>g",
            [["a", "b", "c"], ["d", "", "e"], ["f", "b", "g"]],
        ),
        (
            "<tr><td rowspan='2 rows'>a<td>b<tr><td>c<tr><td rowspan=-2>d<td rowspan=x>e",
            [["a", "b"], ["a", "c"], ["d", "e"]],
        ),
    ],
)
def test_each_value_of_a_spanning_cell_is_under_its_column(table: str, rows: list[list[str]]) -> None:
    assert rows_of(f"<table>{table}</table>") == rows


def test_a_long_cell_that_spans_rows_is_not_repeated() -> None:
    found = rows_of(f"<table><tr><td rowspan=2>{'word ' * 60}<td>1<tr><td>2</table>")
    assert found[1] == ["", "2"]


def test_the_markup_of_a_cell_that_spans_rows_is_not_multiplied() -> None:
    cell = f"<td rowspan=999><b class={'c' * 30}>a</b>{'<i></i>' * 100}</td>"
    tree = LexborHTMLParser(f"<table><tr>{cell}<td>1{'<tr><td>2' * 50}</table>")
    assert tree.body is not None
    fill_spans(tree, tree.body)
    assert len(tree.css("td")) == 2 + 2 * 50
    assert len(tree.css("i")) == 100
    assert tree.body.text(separator="|").count("a") == 51


def test_spans_without_end_add_few_cells() -> None:
    assert len(text_of("<table>" + "<tr><td rowspan=65534 colspan=1000>x" * 300 + "</table>")) < 3_000_000


def test_a_vertical_bar_in_a_cell_is_escaped_once() -> None:
    found = text_of("<table><tr><td>a || b<td><code>p|q</code><tr><td colspan=2>x|y</table>")
    assert "a \\|\\| b" in found
    assert "`p\\|q`" in found
    assert "x\\|y" in found
    assert "\\\\|" not in found


MEDIAWIKI = (
    '<span class="mwe-math-element"><span class="mwe-math-mathml-inline" style="display: none;"><math '
    'alttext="{\\displaystyle e^{i\\pi }+1=0}"><semantics><mi>e</mi><annotation encoding='
    '"application/x-tex">{\\displaystyle e^{i\\pi }+1=0}</annotation></semantics></math></span><img '
    'class="mwe-math-fallback-image-inline" alt="{\\displaystyle e^{i\\pi }+1=0}"></span>'
)
KATEX = (
    '<span class="katex"><span class="katex-mathml"><math><semantics><mi>E</mi><annotation encoding='
    '"application/x-tex">E=mc^2</annotation></semantics></math></span><span class="katex-html" '
    'aria-hidden="true">E=mc2</span></span>'
)


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (MEDIAWIKI, "e^{i\\pi }+1=0"),
        ('<img class="mwe-math-fallback-image-display" alt="{\\displaystyle a}">', "a"),
        ('<img class="mwe-math-fallback-image-inline" alt="\\textstyle \\frac{a}{b}">', "\\frac{a}{b}"),
        (KATEX, "E=mc^2"),
        ('<span class=MathJax>Emc2</span><script type="math/tex">E=mc^2</script>', "E=mc^2"),
        ('<IMG ALT="$ x_1$" SRC="img1.png">', "x_1"),
        ('<img class="formulaInl" alt="$y$">', "y"),
        ("<math><mi>c</mi><mo>=</mo><msup><mi>a</mi><mn>2</mn></msup></math>", "c=a^2"),
        ("<math><mfrac><mrow><mi>x</mi><mo>+</mo><mn>1</mn></mrow><mn>2</mn></mfrac></math>", "(x+1)/2"),
        ("<math><msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup></math>", "x_i^2"),
        (
            "<math><msqrt><mi>a</mi><mo>-</mo><mn>1</mn></msqrt><mo>+</mo><mroot><mn>8</mn><mn>"
            "3</mn></mroot></math>",
            "\u221a(a-1)+8^(1/3)",
        ),
        (
            "<math><msup><mi>a</mi><mn>2</mn></msup><mi>b</mi><mo>=</mo><mover><mi>x</mi><mo>"
            "\u00af</mo></mover></math>",
            "a^2 b=x\u00af",
        ),
        (
            "<math><munderover><mo>\u2211</mo><mrow><mi>k</mi><mo>=</mo><mn>0</mn></mrow><mi>n</mi>"
            "</munderover>"
            "<mi>k</mi></math>",
            "\u2211_(k=0)^n k",
        ),
        (
            "<math><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr> <mtr><mtd><mn>3</mn></mtd>"
            "<mtd><mn>4</mn></mtd></mtr></mtable></math>",
            "1,2;3,4",
        ),
        ("10<sup>8</sup>", "10^8"),
        ("10<SUP>&minus;3</SUP>", "10^\u22123"),
        ("2<sup>10</sup> = 1024", "2^10 = 1024"),
        ("2<sup>n+1</sup>", "2^(n+1)"),
        ("10<sub>2</sub>", "10_2"),
        ("x<sub>max</sub>", "x_max"),
        ("H<sub>2</sub>O", "H2O"),
        ("SO<sub>4</sub><sup>2-</sup>", "SO4^2-"),
        ("21<sup>st</sup> and XIX<sup>e</sup>", "21st and XIXe"),
        ("word<sup>[1]</sup>", "word[1]"),
        ("Mill<sup>TM</sup>", "MillTM"),
    ],
)
def test_formulas_are_text(formula: str, text: str) -> None:
    assert text_of(f"<p>so {formula} is</p>") == f"so {text} is"


def test_alternative_texts_of_other_images_are_left_out() -> None:
    assert text_of('<p>so <img alt="A mill" src=m.png> is</p>') == "so is"


CODE = "def f():\n    return 1"


@pytest.mark.parametrize(
    "markup",
    [
        '<table class="highlighttable"><tr><td class="linenos"><div class="linenodiv"><pre>1\n2</pre></div>'
        f'</td><td class="code"><div><pre><span></span>{CODE}\n</pre></div></td></tr></table>',
        '<div class="chroma"><table class="lntable"><tr><td class="lntd"><pre class="chroma"><code><span '
        'class="lnt">1\n</span><span class="lnt">2\n</span></code></pre></td><td class="lntd"><pre><code>'
        '<span class="line"><span class="cl">def f():\n</span></span><span class="line"><span class="cl">'
        "    return 1\n</span></span></code></pre></td></tr></table></div>",
        '<figure class="highlight"><pre><code><table class="rouge-table"><tbody><tr><td class="gutter gl">'
        f'<pre class="lineno">1\n2\n</pre></td><td class="code"><pre>{CODE}\n</pre></td></tr></tbody>'
        "</table></code></pre></figure>",
        '<table class="highlight"><tr><td class="blob-num" data-line-number="1"></td><td class="blob-code">'
        'def f():</td></tr><tr><td class="blob-num" data-line-number="2"></td><td class="blob-code">'
        "    return 1</td></tr></table>",
        '<div class="fragment"><div class="line"><a name="l1"></a><span class="lineno">    1</span>def f():'
        '</div>\n<div class="line"><span class="lineno">    2</span>    return 1</div>\n</div>',
        '<pre><span style="display:block">def f():</span><span style="display: block">    return 1</span>'
        "</pre>",
        '<pre><code><span class="line"><span class="ln">1</span>def f():</span><span class="line">'
        '<span class="ln">2</span>    return 1</span></code></pre>',
        '<pre><code><div class="token-line">def f():</div><div class="token-line">    return 1</div></code>'
        "</pre>",
        '<pre class="prettyprint linenums"><ol class="linenums"><li class="L0">def f():</li><li class="L1">'
        "    return 1</li></ol></pre>",
        '<div class="fragment"><div class="foldopen"><div class="line"><span class="lineno">    '
        "1</span>def f():"
        '</div></div><div class="line"><span class="lineno">    2</span>    return 1</div></div>',
        '<pre><code><span class="token-line">def f():<br></span><span class="token-line">    return '
        "1<br></span>"
        "</code></pre>",
        f'<pre style="display:block"><code>{CODE}</code></pre>',
        '<div class="syntaxhighlighter"><table><tr><td class="gutter"><div class="line n1">1</div>'
        "<div>2</div></td>"
        '<td class="code"><div class="container"><div class="line n1"><code>def</code> <code>'
        "f():</code></div>"
        '<div class="line n2"><code>&nbsp;&nbsp;&nbsp;&nbsp;</code><code>return 1</code></div></div>'
        "</td></tr>"
        "</table></div>",
        '<div class="code"><div class="line-numbers"><a>1</a><a>2</a></div><pre><code><span '
        'class="line">def f():'
        '</span>\n<span class="line">    return 1</span></code></pre></div>',
        "<pre><ol><li><code>def f():</code></li><li><code>    return 1</code></li><li></li></ol></pre>",
        f'<pre><span class="linenos">1</span>{CODE}</pre>',
        f'<pre><code><span class="boring">fn main() {{\n</span>{CODE}</code></pre>',
    ],
)
def test_code_keeps_its_lines_and_loses_their_numbers(markup: str) -> None:
    assert text_of(f"<p>Before.</p>{markup}") == f"Before.\n\n```\n{CODE}\n```"


def test_a_table_of_numbers_and_code_stays_a_table() -> None:
    found = rows_of("<table><tr><td>200<td><code>OK</code><tr><td>404<td><code>Gone</code></table>")
    assert found == [["200", "`OK`"], ["404", "`Gone`"]]
    step = "<table><tr><td>1<td><div>Run <code>make</code></div><div>and wait</div></table>"
    assert "| 1 | Run `make`" in text_of(f"<p class=gutter>a</p>{step}")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("&lt;img src=x onerror=alert(1)&gt;", "\\<img src=x onerror=alert(1)>"),
        ("&lt;/b&gt; &lt;!-- &lt;?x", "\\</b> \\<!-- \\<?x"),
        ("1 &lt; 2 and a&lt;3", "1 < 2 and a<3"),
        ("[click](javascript:alert(1))", "\\[click](javascript:alert(1))"),
        ("![i](x)", "!\\[i](x)"),
        ("[cli<b>ck</b>](x)", "\\[cli**ck**](x)"),
        ("[a [b](x) c](y)", "\\[a \\[b](x) c](y)"),
        ("[a `b](x)` [c](y)", "\\[a \\`b](x)\\` \\[c](y)"),
        ("[d]: javascript:x", "\\[d]: javascript:x"),
        ("a[1] [b] (c) [d] e:", "a[1] [b] (c) [d] e:"),
        ("&lt;<span>img x</span>", "\\<img x"),
        ("&lt;&#8203;img x", "\\<img x"),
        ("use <code>&lt;img&gt;</code> or <code>[x](y)</code>", "use `<img>` or `[x](y)`"),
        ("a ` b <code>&lt;img&gt;</code>", "a \\` b `<img>`"),
        ("C:\\<code>&lt;img&gt;</code>", "C:\\\\`<img>`"),
        ("a\\&lt;b", "a\\\\\\<b"),
    ],
)
def test_text_is_no_markup(body: str, text: str) -> None:
    assert text_of(f"<p>{body}</p>") == text


def test_code_blocks_are_not_escaped_and_what_follows_is() -> None:
    found = text_of("<pre>a\n```\n&lt;b> [x](y)</pre><ul><li><pre>&lt;i></pre>&lt;u></ul>")
    assert "\n<b> [x](y)\n" in found
    assert "  <i>\n" in found
    assert "\\<u>" in found

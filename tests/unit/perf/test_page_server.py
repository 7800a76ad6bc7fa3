"""Pages of the benchmark: two rounds share no text, and one round is always the same."""

from __future__ import annotations

from collections import Counter
from itertools import product

from indexmill.chunking.adapters.model_tokenizer import ModelTokenizer
from indexmill.chunking.worker import split
from indexmill.contracts.content import ChunkSettings
from indexmill.scraper.extract.content import RawContent, detect, extract
from local.backends.model_files import tokenizer_path
from local.site.catalogue import PAGES_DIR
from tests.perf.page_server import Page, load, mark_of, page_of

_WORDS = ["lantern", "harbour", "keeper", "winter", "boat", "letter", "window", "garden", "river", "stone"]


def chunks(body: bytes) -> list[str]:
    """Return the texts of a page's chunks, as the stages make them."""
    found = extract(RawContent(body, detect(body, "text/html", "http://site.example/"), "utf-8"))
    tokenizer = ModelTokenizer(tokenizer_path())
    return [chunk.text for chunk in split(found.markdown, found.title, ChunkSettings(), tokenizer)]


def test_no_chunk_occurs_twice_in_two_rounds() -> None:
    pages = load(PAGES_DIR)
    assert len(pages) > 10
    bodies = [
        page.marked(mark_of(number * len(pages) + at))
        for number, (at, page) in product((0, 1), enumerate(pages.values()))
    ]
    found = Counter(text for body in bodies for text in chunks(body))
    assert len(set(bodies)) == len(bodies)
    assert len(found) > 80
    assert [text for text, times in found.items() if times > 1] == []


def test_each_block_and_each_part_of_a_long_one_has_a_mark() -> None:
    long = " ".join(_WORDS * 60)
    html = (
        "<head><title>Keeper</title><style>p { color: red }</style></head><body><h1>Harbour</h1>"
        f"<p>{long}</p><ul><li>one</li><li>two&nbsp;<b>three</b></li></ul><table><tr><td>four</td></tr></table>"
        "<p>港口的灯塔看守人在冬天写信</p><script>var kept = 1</script></body>"
    )
    body = page_of(html).marked("MARK").decode()
    for block in (
        "<h1>MARK<",
        "<p>MARK ",
        "<li>MARK<",
        "<li>MARK&nbsp;<b>three<",
        "<td>MARK<",
        "<script>var kept = 1<",
    ):
        assert block in body
    parts = body[body.index("<p>") : body.index("</p>")].split("MARK")
    assert max(map(len, parts)) < 100
    assert "color: red" in body


def test_a_text_without_spaces_keeps_its_characters() -> None:
    text = "港口的灯塔看守人在冬天写信" * 20
    body = page_of(f"<p>{text}</p>").marked("|").decode()
    assert body.replace("|", "") == f"<p>{text}</p>"
    assert body.count("|") == 4


def test_marks_are_words_that_differ() -> None:
    marks = [mark_of(number) for number in range(20_000)]
    assert len(set(marks)) == len(marks)
    assert all(mark.isalpha() and 4 <= len(mark) <= 6 for mark in marks[:300])


def test_the_same_round_is_the_same_page() -> None:
    page = page_of("<p>the lantern in the window</p>")
    assert isinstance(page, Page)
    assert page.marked(mark_of(3)) == page.marked(mark_of(3)) != page.marked(mark_of(4))

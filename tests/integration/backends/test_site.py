from __future__ import annotations

import hashlib
import time
from pathlib import Path

import httpx
import pypdfium2
import pytest
from selectolax.lexbor import LexborHTMLParser

from local.backends.wordllama_model import WordLlamaModel
from local.site.catalogue import DONE, PAGES, PAGES_DIR, QUERIES, REDIRECTS, ROBOTS_TXT, Page

Folder = tuple[httpx.AsyncClient, Path]
HTML = "text/html; charset=utf-8"


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/index.html", HTML),
        ("/", HTML),
        ("/events/", HTML),
        ("/guides/seed-library.md", "text/markdown; charset=utf-8"),
        ("/notes/winter-log.txt", "text/plain; charset=utf-8"),
        ("/reports/annual-report.pdf", "application/pdf"),
        ("/badge.png", "image/png"),
    ],
)
async def test_a_page_comes_with_its_type(site: httpx.AsyncClient, path: str, content_type: str) -> None:
    answer = await site.get(path)
    file = PAGES_DIR / (path.lstrip("/") + ("index.html" if path.endswith("/") else ""))
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, content_type)
    assert answer.content == file.read_bytes()


async def test_a_page_that_the_client_has_is_not_sent_again(site: httpx.AsyncClient) -> None:
    first = await site.get("/handbook.html")
    etag = first.headers["ETag"]
    assert etag == f'"{hashlib.sha256(first.content).hexdigest()[:16]}"'
    again = await site.get("/handbook.html", headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    assert (await site.get("/handbook.html", headers={"If-None-Match": '"other"'})).status_code == 200


async def test_robots_and_redirects_are_the_catalogues(site: httpx.AsyncClient) -> None:
    robots = await site.get("/robots.txt")
    assert (robots.status_code, robots.text) == (200, ROBOTS_TXT)
    assert REDIRECTS
    for path, location in REDIRECTS.items():
        moved = await site.get(path)
        assert (moved.status_code, moved.headers["Location"]) == (301, location)
        assert (await site.get(location)).status_code == 200


@pytest.mark.parametrize("path", ["/lost.html", "/events", "/news/", "/%00", "/guides/seed-library.md/"])
async def test_what_is_not_there_is_404(site: httpx.AsyncClient, path: str) -> None:
    answer = await site.get(path)
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, HTML)


async def test_a_slow_page_takes_its_time(site: httpx.AsyncClient) -> None:
    began = time.monotonic()
    answer = await site.get("/slow", params={"seconds": "0.2"})
    assert time.monotonic() - began >= 0.2
    assert (answer.status_code, "0.2 seconds" in answer.text) == (200, True)


@pytest.mark.parametrize("code", [204, 304, 403, 429, 500, 503])
async def test_any_status_may_be_asked_for(site: httpx.AsyncClient, code: int) -> None:
    plain = await site.get(f"/status/{code}")
    assert (plain.status_code, plain.headers.get("Retry-After")) == (code, None)
    answer = await site.get(f"/status/{code}", params={"retry_after": "7"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (code, "7")


async def test_a_flaky_page_gets_better(site: httpx.AsyncClient) -> None:
    answers = [await site.get("/flaky/one", params={"fails": "2"}) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [503, 503, 200, 200]
    assert (await site.get("/flaky/two")).status_code == 503


async def test_control_counts_requests_by_path(site: httpx.AsyncClient) -> None:
    before = (await site.get("/control")).json()["requests"]
    for path in ("/visit/opening-hours.html", "/visit/opening-hours.html", "/visit/lost.html"):
        await site.get(path)
    after = (await site.get("/control")).json()["requests"]
    asked = {path: count - before.get(path, 0) for path, count in after.items() if count != before.get(path)}
    assert asked == {"/visit/opening-hours.html": 2, "/visit/lost.html": 1}


async def test_any_folder_may_be_served(folder_site: Folder) -> None:
    client, root = folder_site
    (root / "sub").mkdir()
    (root / "sub" / "index.html").write_text("<p>sub")
    (root / "a b.txt").write_text("grün")
    (root / "no-ending").write_text("<p>page")
    spaced = await client.get("/a%20b.txt")
    assert (spaced.text, spaced.headers["Content-Type"]) == ("grün", "text/plain; charset=utf-8")
    assert (await client.get("/sub/")).text == "<p>sub"
    assert (await client.get("/no-ending")).headers["Content-Type"] == HTML
    for path in ("/", "/robots.txt", "/index.html", *REDIRECTS):
        assert (await client.get(path)).status_code == 404, "the built-in pages are another site's"
    (root / "robots.txt").write_text("User-agent: *\n")
    assert (await client.get("/robots.txt")).text == "User-agent: *\n"


async def test_nothing_outside_the_folder_is_served(folder_site: Folder) -> None:
    client, root = folder_site
    (root.parent / "secret.txt").write_text("secret")
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    for path in (
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/link.txt",
        "//etc/passwd",
        f"/{root.parent}/secret.txt",
    ):
        assert (await client.get(path)).status_code == 404, path


def file_of(page: Page) -> Path:
    return PAGES_DIR / REDIRECTS.get(page.path, page.path).lstrip("/")


def text_of(path: Path) -> str:
    """Return a page's words, by type."""
    if path.suffix == ".pdf":
        document = pypdfium2.PdfDocument(path)
        try:
            title = document.get_metadata_dict().get("Title", "")
            return "\n".join([title, *(page.get_textpage().get_text_range() for page in document)])
        finally:
            document.close()
    text = path.read_text()
    if path.suffix != ".html":
        return text
    tree = LexborHTMLParser(text)
    main = tree.css_first("main, article, body")
    return main.text(separator=" ") if main else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
async def test_every_page_of_the_catalogue_exists(site: httpx.AsyncClient, page: Page) -> None:
    answer = await site.get(page.path, follow_redirects=True)
    assert answer.status_code == (404 if page.outcome == "http_404" else 200)
    if page.outcome == "robots_disallowed":
        assert page.path.startswith("/private/")
    if page.outcome == DONE:
        words = text_of(file_of(page)) if page.path.endswith(".pdf") else answer.text
        assert page.title.casefold() in words.casefold()
        assert len(text_of(file_of(page))) > 300


def test_every_file_is_in_the_catalogue() -> None:
    files = {f"/{path.relative_to(PAGES_DIR)}" for path in PAGES_DIR.rglob("*") if path.is_file()}
    assert files == {page.path for page in PAGES} - REDIRECTS.keys() - {"/lost.html"}


def test_languages_are_marked() -> None:
    for page in PAGES:
        if page.outcome == DONE and page.path.endswith(".html"):
            assert f'lang="{page.language}"' in file_of(page).read_text(), page.path


@pytest.mark.parametrize(("query", "path"), QUERIES, ids=[path for _, path in QUERIES])
def test_the_right_page_of_each_query_ranks_first(query: str, path: str) -> None:
    model = WordLlamaModel.from_wheel()
    pages = [page for page in PAGES if page.outcome == DONE and page.path not in REDIRECTS]
    vectors = model.embed(model.tokenize([query, *(text_of(file_of(page)) for page in pages)]))
    cosines = vectors[1:] @ vectors[0]
    ranked = sorted(zip(cosines.tolist(), (page.path for page in pages), strict=True), reverse=True)
    assert ranked[0][1] == path, ranked[:3]

"""The page of the API that the local gateway serves."""

from __future__ import annotations

from html.parser import HTMLParser

import httpx
import pytest

from local.stack.chromium import chromium
from tests.support import browser
from tests.support.openapi import document
from tests.support.stack import RunningStack

pytestmark = pytest.mark.e2e

CHROMIUM = chromium()
LOADED = {"src", "srcset", "data", "action", "background", "poster", "style"}
"""Attributes by which a page can load something."""


class Elements(HTMLParser):
    """All elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_names_every_operation_schema_and_status(stack: RunningStack) -> None:
    answer = httpx.get(f"{stack.gateway}/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    elements = Elements(answer.text)
    ids = {attributes["id"] for _, attributes in elements.found if "id" in attributes}
    operations = {
        f"{method.upper()}-{path}" for path, methods in document()["paths"].items() for method in methods
    }
    assert ids == operations | document()["components"]["schemas"].keys()
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            _, _, after = answer.text.partition(f'<section id="{method.upper()}-{path}">')
            shown = after.partition("</section>")[0]
            assert [status for status in operation["responses"] if f"<h4>{status} " not in shown] == []
            assert "<pre>" in shown
            scopes = [scope for way in operation["security"] for each in way.values() for scope in each]
            assert [scope for scope in scopes if f"with the scope {scope}" not in shown] == []


def test_the_page_loads_nothing(stack: RunningStack) -> None:
    answer = httpx.get(f"{stack.gateway}/docs")
    elements = Elements(answer.text)
    ids = {attributes["id"] for _, attributes in elements.found if "id" in attributes}
    assert {tag for tag, _ in elements.found} & {"script", "link", "img", "iframe", "object", "form"} == set()
    assert {name for _, attributes in elements.found for name in attributes} & LOADED == set()
    links = {attributes["href"] for _, attributes in elements.found if "href" in attributes}
    assert links <= {f"#{each}" for each in ids}
    assert "url(" not in answer.text
    assert "@import" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none';")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the path, nor in INDEXMILL_CHROMIUM")
async def test_a_browser_shows_it_and_requests_nothing_more(stack: RunningStack) -> None:
    async with browser.opened(CHROMIUM or "", f"{stack.gateway}/docs") as page:
        assert await page.evaluate("document.querySelectorAll('section').length") > 40
        # The style sheet inside the page holds under its own policy.
        assert (
            await page.evaluate("getComputedStyle(document.querySelector('section')).borderTopStyle")
            == "solid"
        )
        loaded = await page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
    assert [each for each in loaded if not each.endswith("/favicon.ico")] == []

"""A web site whose pages change, and some of which do not answer at once."""

from __future__ import annotations

from typing import Final

from indexmill.scraper.classify import status_failure
from indexmill.scraper.ports import Fetched
from indexmill.testing.fetcher import InMemoryFetcher
from tests.faults.model.system import Kind

_AWAY_S: Final = 60
"""So long that the job is told."""
_SHAKY: Final = 2
"""Answers with 503 before the page comes: fewer than a stage has tries."""


class Site(InMemoryFetcher):
    """Every version of a page says what no other ever said."""

    def __init__(self, name: str) -> None:
        """Without pages; `name` is one word, the same on no other site."""
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        """Every sentence that a page ever had, by URL."""
        self._name = name
        self._away: dict[str, int] = {}

    def page(self, kind: Kind) -> str:
        """Return the URL that is submitted: the newest page, unless that is to be a new one."""
        if kind in ("new", "shaky") or not self.texts:
            url = f"https://example.com/{self._name}-{len(self.texts)}"
            self._away[url] = _SHAKY if kind == "shaky" else 0
            self.texts[url] = []
        url, texts = list(self.texts.items())[-1]
        if kind == "changed" or not texts:
            texts.append(f"Sentence {self._name}x{len(self.texts)}v{len(texts)} stands here.")
            self.pages[url] = f"<main><p>{texts[-1]}</p></main>"
        return url

    async def fetch(
        self, url: str, *, deadline: float, max_bytes: int | None = None, truncate: bool = False
    ) -> Fetched:
        """Return the page, or fail like a site that is away for the moment."""
        if self._away.get(url):
            self._away[url] -= 1
            raise status_failure(503, retry_after=_AWAY_S)
        return await super().fetch(url, deadline=deadline, max_bytes=max_bytes, truncate=truncate)

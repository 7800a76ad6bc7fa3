"""Fake web site: pages change between submits, and some answer 503 at first."""

from __future__ import annotations

from typing import Final, Literal

from indexmill.scraper.adapters.answer import status_failure
from indexmill.scraper.ports import MAX_REDIRECTS, BeforeHop, Fetched, OnSend, Validators
from tests.twins.fetcher import InMemoryFetcher

_RETRY_AFTER_S: Final = 60
"""Long enough for a notice to the job."""
_SHAKY: Final = 2
"""Answers with 503 before the page comes: fewer than a stage has tries."""


SubmitKind = Literal["new", "shaky", "same", "changed", "twice"]
"""A new page, one that answers 503 at first, or the last page again: forced, forced with another text, or not
forced."""


class Site(InMemoryFetcher):
    """Every version of a page says what no other ever said."""

    def __init__(self, name: str) -> None:
        """Without pages; `name` is one word, the same on no other site."""
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        """Every sentence that a page ever had, by URL."""
        self._name = name
        self._unavailable: dict[str, int] = {}

    def page(self, kind: SubmitKind) -> str:
        """Return the URL that is submitted: the newest page, unless that is to be a new one."""
        if kind in ("new", "shaky") or not self.texts:
            url = f"https://example.com/{self._name}-{len(self.texts)}"
            self._unavailable[url] = _SHAKY if kind == "shaky" else 0
            self.texts[url] = []
        url, texts = list(self.texts.items())[-1]
        if kind == "changed" or not texts:
            texts.append(f"Sentence {self._name}x{len(self.texts)}v{len(texts)} stands here.")
            self.pages[url] = f"<main><p>{texts[-1]}</p></main>"
        return url

    async def fetch(
        self,
        url: str,
        *,
        deadline: float,
        cut_at: int | None = None,
        before_hop: BeforeHop | None = None,
        known: Validators | None = None,
        redirects: int = MAX_REDIRECTS,
        on_send: OnSend | None = None,
    ) -> Fetched:
        """Return the page, or fail with 503 while the page is unavailable."""
        if self._unavailable.get(url):
            self._unavailable[url] -= 1
            raise status_failure(503, retry_after=_RETRY_AFTER_S)
        return await super().fetch(
            url,
            deadline=deadline,
            cut_at=cut_at,
            before_hop=before_hop,
            known=known,
            redirects=redirects,
            on_send=on_send,
        )

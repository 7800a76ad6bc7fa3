"""Corpora of one caller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from indexmill.client.transport import Transport

if TYPE_CHECKING:
    from indexmill.contracts.http_corpora import Corpus

_PAGE: Final = "200"


class Corpora(Transport):
    """Requests about corpora."""

    def corpora(self) -> Iterator[Corpus]:
        """Yield the corpora that the caller may read, by name, with their figures. Raises ApiError."""
        from indexmill.contracts.http_corpora import CorpusList

        wanted = {"limit": _PAGE}
        while True:
            page = CorpusList.model_validate(self._request("GET", "/embedding/corpora", params=wanted))
            yield from page.corpora
            if page.next_cursor is None:
                return
            wanted["cursor"] = page.next_cursor

    def corpus(self, name: str) -> Corpus:
        """Return the figures of the corpus with this name or id. Raises ApiError."""
        from indexmill.contracts.http_corpora import Corpus

        return Corpus.model_validate(self._request("GET", f"/embedding/corpora/{name}"))

    def rename_corpus(self, name: str, new_name: str) -> Corpus:
        """Give the corpus with this name or id another name; jobs in flight stay with it. Raises ApiError."""
        from indexmill.contracts.http_corpora import Corpus

        return self._post(f"/embedding/corpora/{name}/rename", Corpus, {"new_name": new_name})

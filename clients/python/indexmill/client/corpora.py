"""Corpora of one caller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from indexmill.client.transport import Transport

if TYPE_CHECKING:
    from indexmill.contracts.http_corpora import Corpus, CorpusGrants, CorpusReport

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

    def grants(self, name: str) -> CorpusGrants:
        """Return the callers that the corpus with this name or id is shared with. Raises ApiError."""
        from indexmill.contracts.http_corpora import CorpusGrants

        return CorpusGrants.model_validate(self._request("GET", f"/embedding/corpora/{name}/grants"))

    def share_corpus(self, name: str, caller_id: str) -> CorpusGrants:
        """Let another caller search, list and read the corpus, by its `corpus_id`. Raises ApiError."""
        from indexmill.contracts.http_corpora import CorpusGrants

        return self._post(f"/embedding/corpora/{name}/share", CorpusGrants, {"caller_id": caller_id})

    def unshare_corpus(self, name: str, caller_id: str) -> CorpusGrants:
        """End such a grant, from the next request on. Raises ApiError."""
        from indexmill.contracts.http_corpora import CorpusGrants

        return self._post(f"/embedding/corpora/{name}/unshare", CorpusGrants, {"caller_id": caller_id})

    def verify_corpus(self, name: str) -> Iterator[CorpusReport]:
        """Verify a corpus and yield each request's report; the last one has `sound`. Raises ApiError."""
        from indexmill.contracts.http_corpora import CorpusReport

        cursor: str | None = None
        while True:
            report = self._post(f"/embedding/corpora/{name}/verify", CorpusReport, {"cursor": cursor})
            yield report
            if (cursor := report.next_cursor) is None:
                return

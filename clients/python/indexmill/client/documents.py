"""Documents of one caller's corpora: read them, delete them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from indexmill.client.errors import ApiError
from indexmill.client.transport import Transport

if TYPE_CHECKING:
    from indexmill.contracts.http_deletion import DeletionPreview, SignedReport
    from indexmill.contracts.http_documents import ChunkPage, DocumentChunk, DocumentItem, DocumentList
    from indexmill.contracts.job import SubmitResponse

_PART: Final = 1_000_000
"""Characters that one answer can have."""


class Documents(Transport):
    """Requests about what is published, without a question; and deletions of it."""

    def documents(self, corpus_name: str, **filters: str | int | bool | None) -> DocumentList:
        """Return one page of a corpus's documents, in the order of their URLs. Raises ApiError.

        Filters: url_prefix, content_type, stale (True: those whose page is gone), limit, cursor.
        """
        from indexmill.contracts.http_documents import DocumentList

        return DocumentList.model_validate(self._of_corpus(corpus_name, "", filters))

    def all_documents(self, corpus_name: str, **filters: str | int | bool | None) -> Iterator[DocumentItem]:
        """Yield all documents that match, fetching pages on demand; filters as of `documents`."""
        page = self.documents(corpus_name, **filters)
        yield from page.documents
        while page.next_cursor is not None:
            page = self.documents(corpus_name, **{**filters, "cursor": page.next_cursor})
            yield from page.documents

    def document(self, corpus_name: str, document_id: str) -> DocumentItem:
        """Return one document; not_found for an unknown one and for another caller's. Raises ApiError."""
        from indexmill.contracts.http_documents import DocumentItem

        return DocumentItem.model_validate(self._of_corpus(corpus_name, f"/{document_id}", {}))

    def chunks(
        self, corpus_name: str, document_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> ChunkPage:
        """Return one page of a document's chunks, in order.

        Raises ApiError, also invalid_transition when the document was published again since the first page.
        """
        from indexmill.contracts.http_documents import ChunkPage

        page = {"limit": limit, "cursor": cursor}
        return ChunkPage.model_validate(self._of_corpus(corpus_name, f"/{document_id}/chunks", page))

    def all_chunks(self, corpus_name: str, document_id: str) -> Iterator[DocumentChunk]:
        """Yield all chunks of one version of a document, fetching pages on demand; errors as of `chunks`."""
        page = self.chunks(corpus_name, document_id)
        yield from page.chunks
        while page.next_cursor is not None:
            page = self.chunks(corpus_name, document_id, cursor=page.next_cursor)
            yield from page.chunks

    def content(self, corpus_name: str, document_id: str) -> str:
        """Return the text that a document's chunks were cut from, whatever its size.

        The offsets of chunks and search results count its characters. It is fetched in parts, and again from
        the beginning when another version is published meanwhile. Raises ApiError, also content_expired where
        the text is not kept.
        """
        path = f"/embedding/corpora/{corpus_name}/documents/{document_id}/content"
        parts: list[str] = []
        start, tag = 0, ""
        while True:
            try:
                part = self._send("GET", path, params={"start": str(start), "end": str(start + _PART)})
                replaced = bool(parts) and part.headers["ETag"] != tag
            except ApiError as error:
                # The newer version may be shorter than what there is of the older one.
                if not parts or error.code != "validation_error":
                    raise
                replaced = True
            if replaced:
                parts, start = [], 0
                continue
            tag = part.headers["ETag"]
            parts.append(part.text)
            start += _PART
            if start >= int(part.headers["X-Text-Length"]):
                return "".join(parts)

    def delete(self, corpus_name: str | None = None, **what: Any) -> SubmitResponse:
        """Start the job that deletes documents and all that was made of them. Raises ApiError.

        What: one of url, name (of a document without a URL), document_id, filter and everything; the last two
        with the confirm of a preview. From here on nothing of before is published any more; when the job is
        done, `deletion_report` has its signed report.
        """
        from indexmill.contracts.job import SubmitResponse

        return self._post("/orchestrator/jobs", SubmitResponse, _deletion(corpus_name, what))

    def preview_deletion(self, corpus_name: str | None = None, **what: Any) -> DeletionPreview:
        """Return what `delete` would take away now, and its confirm; changes nothing. Raises ApiError."""
        from indexmill.contracts.http_deletion import DeletionPreview

        body = {**_deletion(corpus_name, what), "dry_run": True}
        return self._post("/orchestrator/jobs", DeletionPreview, body)

    def deletion_report(self, job_id: str) -> SignedReport:
        """Return the signed report of a deletion; not_found while it has not ended. Raises ApiError."""
        from indexmill.contracts.http_deletion import SignedReport

        return SignedReport.model_validate(self._request("GET", f"/orchestrator/jobs/{job_id}/report"))

    def _of_corpus(self, corpus_name: str, path: str, query: dict[str, Any]) -> Any:
        sent = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in query.items()
            if value is not None
        }
        return self._request("GET", f"/embedding/corpora/{corpus_name}/documents{path}", params=sent)


def _deletion(corpus_name: str | None, what: dict[str, Any]) -> dict[str, Any]:
    corpus = {} if corpus_name is None else {"corpus_name": corpus_name}
    return {"job_type": "delete", "delete": what, **corpus}

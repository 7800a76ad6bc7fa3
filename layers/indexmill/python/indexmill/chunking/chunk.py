"""Split one text, or one stored document, into ordered chunks."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.chunking.ports import Tokenizer
from indexmill.chunking.split import split
from indexmill.contracts.content import CHUNK_LIST, CHUNKER, BlobRef, Chunk, ChunkSettings
from indexmill.contracts.errors import ErrorCode, PermanentError
from indexmill.contracts.messages import Chunked, ChunkTask
from indexmill.platform.blobs import BlobStore


@dataclass(frozen=True, slots=True)
class ChunkDocuments:
    """The chunking use case. Keeps nothing between calls."""

    tokenizer: Tokenizer
    blobs: BlobStore

    def one(self, text: str, title: str | None, settings: ChunkSettings) -> list[Chunk]:
        """Return the ordered chunks of one text.

        Raises PermanentError: empty_content, too_many_chunks, parse_error for text that is not valid Unicode.
        """
        try:
            return split(text, title, settings, self.tokenizer)
        except UnicodeEncodeError as error:
            raise PermanentError(ErrorCode.PARSE_ERROR, "The text is not valid Unicode.") from error

    def task(self, task: ChunkTask, inline_limit: int) -> Chunked:
        """Return the chunks of `task`; those of more than `inline_limit` bytes of JSON by reference.

        A task with a `result_key` has its chunks inline: they are stored there as a whole.
        Raises the errors of `one`, PermanentError(content_missing, content_corrupt) and
        TransientError(storage_unavailable).
        """
        chunks = self.one(self._text(task), task.title, task.settings)
        if task.result_key is None:
            data = CHUNK_LIST.dump_json(chunks)
            if len(data) > inline_limit:
                ref = self.blobs.put(data, kind="chunks", content_type="application/json")
                return self._chunked(len(chunks), chunks_ref=ref)
        return self._chunked(len(chunks), chunks=chunks)

    def _chunked(
        self, count: int, *, chunks: list[Chunk] | None = None, chunks_ref: BlobRef | None = None
    ) -> Chunked:
        return Chunked(
            chunks=chunks,
            chunks_ref=chunks_ref,
            chunk_count=count,
            chunker=CHUNKER,
            tokenizer=self.tokenizer.version,
        )

    def _text(self, task: ChunkTask) -> str:
        if task.text_ref is None:
            return task.text or ""
        try:
            return self.blobs.get(task.text_ref).decode()
        except UnicodeDecodeError as error:
            raise PermanentError(ErrorCode.CONTENT_CORRUPT, "The stored text is not UTF-8.") from error

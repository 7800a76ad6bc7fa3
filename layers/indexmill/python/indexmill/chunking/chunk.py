"""Split documents: one for a caller who waits, several for the Orchestrator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter

from indexmill.chunking.ports import Tokenizer
from indexmill.chunking.split import split
from indexmill.contracts.content import Chunk, ChunkSettings
from indexmill.contracts.errors import ErrorCode, PermanentError
from indexmill.contracts.messages import ChunkCall, Chunked, ChunkItem, ChunkReply, StageFailure
from indexmill.platform.blobs import BlobStore

CHUNK_LIST: Final = TypeAdapter(list[Chunk])
"""How chunks are stored behind a `chunks_ref`: a JSON list."""


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

    def call(self, call: ChunkCall) -> ChunkReply:
        """Split every item of `call`; what is wrong with one is told in its place and harms no other.

        Raises TransientError(storage_unavailable): then the whole call is worth another try.
        """
        return ChunkReply(items=[self._item(item, call) for item in call.items])

    def _item(self, item: ChunkItem, call: ChunkCall) -> Chunked:
        try:
            return self._packed(self.one(self._text(item), item.title, call.settings), call.inline_limit)
        except PermanentError as error:
            return Chunked(failure=StageFailure(code=error.code, message=error.message))

    def _text(self, item: ChunkItem) -> str:
        if item.text_ref is None:
            return item.text or ""
        try:
            return self.blobs.get(item.text_ref).decode()
        except UnicodeDecodeError as error:
            raise PermanentError(ErrorCode.CONTENT_CORRUPT, "The stored text is not UTF-8.") from error

    def _packed(self, chunks: list[Chunk], inline_limit: int) -> Chunked:
        data = CHUNK_LIST.dump_json(chunks)
        if len(data) <= inline_limit:
            return Chunked(chunks=chunks, chunk_count=len(chunks))
        ref = self.blobs.put(data, kind="chunks", content_type="application/json")
        return Chunked(chunks_ref=ref, chunk_count=len(chunks))

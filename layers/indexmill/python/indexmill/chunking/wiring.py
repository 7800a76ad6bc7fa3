"""Composition root of Chunking: the only place that builds its adapters."""

from __future__ import annotations

from indexmill.chunking.chunk import ChunkDocuments
from indexmill.chunking.ports import Tokenizer
from indexmill.chunking.settings import ChunkingApiSettings
from indexmill.platform.blobs import BlobStore


def build_api(
    settings: ChunkingApiSettings, *, tokenizer: Tokenizer | None = None, blobs: BlobStore | None = None
) -> ChunkDocuments:
    """Return the use case; the tokenizer is loaded now, while a cold start has the CPU to itself."""
    from indexmill.chunking.adapters.model_tokenizer import ModelTokenizer
    from indexmill.platform.aws.s3_blobs import S3Blobs

    if tokenizer is None:
        tokenizer = ModelTokenizer(settings.tokenizer_file)
        tokenizer.load()
    return ChunkDocuments(tokenizer, blobs if blobs is not None else S3Blobs(settings.bucket_name))

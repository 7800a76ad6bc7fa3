"""Synchronous embedding of a few texts; with a URL, they are published as that document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from indexmill.contracts.content import chunk_ids
from indexmill.contracts.errors import CallerError, ErrorCode, PermanentError, TransientError
from indexmill.contracts.http_embedding import EmbedRequest, EmbedResponse
from indexmill.contracts.identity import CallerContext, CorpusIsolation, hidden_characters
from indexmill.contracts.messages import Target
from indexmill.embedding.ports import DocumentVersion, Embedder, PublishOutcome, Vector, VectorIndex
from indexmill.embedding.targets import CanonicalUrl, ChunkQuota, Generations, chunks_of, target_of

_OF_THE_TEXTS: Final = (ErrorCode.TOKEN_LIMIT_EXCEEDED, ErrorCode.EMBEDDING_REJECTED)


@dataclass(frozen=True, slots=True)
class EmbedTexts:
    """The synchronous use case. Sends no result to a job."""

    embedder: Embedder
    index: VectorIndex
    generations: Generations
    canonical: CanonicalUrl
    quota: ChunkQuota
    isolation: CorpusIsolation = CorpusIsolation.CALLER

    def __call__(self, caller: CallerContext, request: EmbedRequest, *, timeout_s: float) -> EmbedResponse:
        """Return the vectors of `request.texts`, after publishing when it names a document.

        Raises CallerError for the corpus name, the URL, too long a text or too many chunks for the caller's
        day, and errors of model and index.
        """
        target = None
        if request.url is not None:
            # The generation of what is published is taken when the vectors are there.
            target, _, held = target_of(
                caller.caller_id,
                request.corpus_name,
                request.url,
                self.canonical,
                self.isolation,
                self.generations,
            )
            self.quota.check_corpus(caller, held)
        with self.quota.used(caller, len(request.texts), "body.texts"):
            return self._embed(request, target, timeout_s)

    def _embed(self, request: EmbedRequest, target: Target | None, timeout_s: float) -> EmbedResponse:
        texts = {str(at): text for at, text in enumerate(request.texts)}
        by_place = self._vectors(texts, timeout_s)
        vectors = [by_place[place] for place in texts]
        space = self.embedder.space
        answer = EmbedResponse(
            embeddings=[list(vector) for vector in vectors],
            model=space.model,
            dimension=space.dimension,
            count=len(vectors),
            hidden_characters=sum(map(hidden_characters, request.texts)),
            job_id=request.job_id,
        )
        if target is not None:
            self._publish(target, request, vectors, answer)
        return answer

    def _vectors(self, texts: dict[str, str], timeout_s: float) -> dict[str, Vector]:
        try:
            return vectors_of(self.embedder, texts, timeout_s=timeout_s)
        except PermanentError as error:
            if error.code in _OF_THE_TEXTS:
                raise CallerError(error.code, error.message, field="body.texts") from error
            # Any text would come to that: the endpoint is misconfigured, which is not the caller's fault.
            message = "The embedding endpoint cannot be used right now."
            raise TransientError(ErrorCode.EMBEDDING_UNAVAILABLE, message) from error

    def _publish(
        self, target: Target, request: EmbedRequest, vectors: list[Vector], answer: EmbedResponse
    ) -> None:
        chunks, source = chunks_of(request.texts)
        ids = chunk_ids(target.document_id, chunks)
        space = self.embedder.space
        stored = self.index.stored(space, ids)
        pairs = zip(ids, vectors, strict=True)
        version = DocumentVersion(
            target=target,
            generation=self.generations.next(),
            job_id=None,
            title=request.title,
            content_sha256=None,
            space=space,
            chunks=chunks,
            chunk_ids=ids,
            source=source,
            vectors={chunk_id: vector for chunk_id, vector in pairs if chunk_id not in stored},
        )
        (seen,) = self.index.publish([version])
        if seen is PublishOutcome.FENCED:
            # A job of the same document was stopped in between; what we publish has nothing to do with it.
            (seen,) = self.index.publish([replace(version, generation=self.generations.next())])
        answer.published = seen is PublishOutcome.PUBLISHED
        answer.document_id, answer.chunk_ids = target.document_id, ids


def vectors_of(embedder: Embedder, texts: Mapping[str, str], *, timeout_s: float) -> dict[str, Vector]:
    """Return the vector of each key's text in one call to the embedder, or none for no texts."""
    if not texts:
        return {}
    unique = list(dict.fromkeys(texts.values()))
    by_text = dict(zip(unique, embedder.embed(unique, timeout_s=timeout_s), strict=True))
    return {key: by_text[text] for key, text in texts.items()}

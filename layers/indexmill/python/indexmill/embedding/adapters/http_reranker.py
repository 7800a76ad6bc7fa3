"""Reranker over HTTP: `POST /rerank` as Cohere, Jina, Voyage and servers of open models speak it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json

from indexmill.contracts.errors import IndexmillError
from indexmill.embedding.ports import NotReranked
from indexmill.platform.aws.secrets import Secret

if TYPE_CHECKING:
    import httpx2

_BYTES_PER_TEXT: Final = 10_000
"""Some servers repeat the texts in their answer."""
_BYTES_AROUND: Final = 65_536
_REFUSED: Final = 401


class HttpReranker:
    """One model of an endpoint, which gets a question with all of its texts in one request."""

    def __init__(self, url: str, model: str, api_key: Secret | None) -> None:
        """`url` is the whole address; nothing is opened yet."""
        self._url = url
        self._model = model
        self._api_key = api_key
        self._client: httpx2.Client | None = None

    def rerank(self, query: str, texts: Sequence[str], *, timeout_s: float) -> list[float]:
        """Return a finite score per text, in order. Raises NotReranked."""
        import httpx2

        body = {"model": self._model, "query": query, "documents": list(texts), "top_n": len(texts)}
        limit = _BYTES_AROUND + _BYTES_PER_TEXT * len(texts)
        try:
            status, answer = self._posted(body, timeout_s, limit)
            if status == _REFUSED and self._api_key is not None:
                self._api_key.again()
                status, answer = self._posted(body, timeout_s, limit)
        except (httpx2.HTTPError, IndexmillError, RuntimeError) as error:
            raise NotReranked(f"The reranking endpoint cannot be asked: {type(error).__name__}.") from error
        if status != httpx2.codes.OK:
            raise NotReranked(f"The reranking endpoint answered with HTTP {status}.")
        return _scores(answer, len(texts))

    def end(self) -> None:
        """Close the connections, also those of calls that are under way in other threads."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _posted(self, body: dict[str, Any], timeout_s: float, limit: int) -> tuple[int, bytes]:
        import httpx2

        client = self._client = self._client or httpx2.Client(follow_redirects=False)
        key = None if self._api_key is None else self._api_key.current()
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        received = bytearray()
        with client.stream("POST", self._url, json=body, headers=headers, timeout=timeout_s) as answer:
            for part in answer.iter_bytes():
                received += part
                if len(received) > limit:
                    raise NotReranked("The answer of the reranking endpoint is too large.")
        return answer.status_code, bytes(received)


def _scores(body: bytes, count: int) -> list[float]:
    """Read `results`, in any order, with `index` and `relevance_score` of each text."""
    try:
        results = from_json(body)["results"]
        scores = {result["index"]: float(result["relevance_score"]) for result in results}
    except (ValueError, KeyError, TypeError) as error:
        raise NotReranked("The answer of the reranking endpoint cannot be read.") from error
    if scores.keys() != set(range(count)) or not all(map(math.isfinite, scores.values())):
        raise NotReranked(f"The reranking endpoint sent no score for some of {count} texts.")
    return [scores[at] for at in range(count)]

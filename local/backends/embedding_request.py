"""Validation of embeddings requests, with OpenAI's error texts and error shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from local.backends.word_tokenizer import TokenIds
from local.backends.wordllama_model import WordLlamaModel

MAX_INPUTS = 2048
MAX_TOKENS_PER_INPUT = 8192
MAX_TOKENS_PER_REQUEST = 300_000


class Refused(Exception):
    """Raised for a request that cannot be served; `status` and `body` are the HTTP response."""

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(message, "invalid_request_error", param=param, code=code)


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """An accepted request: the token ids of each input, in order."""

    token_ids: list[TokenIds]
    dimensions: int
    base64: bool

    @property
    def tokens(self) -> int:
        """Number of tokens of all inputs."""
        return sum(len(ids) for ids in self.token_ids)


def error_body(
    message: str, kind: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """Return an error document in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def parse_request(body: object, model: WordLlamaModel, model_id: str) -> EmbeddingRequest:
    """Check the JSON body and tokenize its inputs. Raises Refused."""
    if not isinstance(body, dict):
        raise Refused("We could not parse the JSON body of your request.")
    if body.get("model") != model_id:
        raise Refused(
            f"The model `{body.get('model')}` does not exist or you do not have access to it.",
            code="model_not_found",
            status=404,
        )
    encoding = body.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise Refused(
            "encoding_format is 'float' or 'base64'.", param="encoding_format", code="invalid_value"
        )
    request = EmbeddingRequest(
        token_ids=_token_ids(body.get("input"), model),
        dimensions=_dimensions(body.get("dimensions"), model),
        base64=encoding == "base64",
    )
    _check_lengths(request)
    return request


def _dimensions(wanted: object, model: WordLlamaModel) -> int:
    if wanted is None:
        return model.dimensions
    if type(wanted) is not int or not 1 <= wanted <= model.dimensions:
        raise Refused(
            f"dimensions is a number from 1 to {model.dimensions}.", param="dimensions", code="invalid_value"
        )
    return wanted


def _token_ids(given: object, model: WordLlamaModel) -> list[TokenIds]:
    """Return token ids of a text, a list of texts, one list of ids, or a list of lists of ids."""
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list) or not given:
        raise Refused(
            "'input' is a text, a list of texts or lists of token ids, and not empty.", param="input"
        )
    if _is_ids(given):
        given = [given]
    if len(given) > MAX_INPUTS:
        raise Refused(f"'input' has {len(given)} items; at most {MAX_INPUTS} are allowed.", param="input")
    if not all(given):
        raise Refused("'input' must not contain an empty text or list.", param="input", code="empty_input")
    texts = [one for one in given if isinstance(one, str)]
    if len(texts) == len(given):
        return _tokenized(texts, model)
    if all(_is_ids(one) for one in given):
        return [_checked_ids(one, model.vocabulary) for one in given]
    raise Refused("'input' mixes texts, token ids and other things.", param="input", code="invalid_type")


def _tokenized(texts: Sequence[str], model: WordLlamaModel) -> list[TokenIds]:
    try:
        return model.tokenize(texts)
    except (UnicodeEncodeError, TypeError) as problem:
        raise Refused(
            "'input' holds a text that is not valid Unicode.", param="input", code="invalid_value"
        ) from problem


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is int for one in value)


def _checked_ids(ids: Sequence[int], vocabulary: int) -> TokenIds:
    if min(ids) < 0 or max(ids) >= vocabulary:
        raise Refused(f"token ids are from 0 to {vocabulary - 1}.", param="input", code="invalid_value")
    return np.array(ids, dtype=np.int32)


def _check_lengths(request: EmbeddingRequest) -> None:
    longest = max(len(ids) for ids in request.token_ids)
    if longest > MAX_TOKENS_PER_INPUT:
        raise Refused(
            f"This model's maximum context length is {MAX_TOKENS_PER_INPUT} tokens, however you requested"
            f" {longest} tokens. Please reduce your input.",
            param="input",
            code="context_length_exceeded",
        )
    if request.tokens > MAX_TOKENS_PER_REQUEST:
        raise Refused(
            f"Requested {request.tokens} tokens, max {MAX_TOKENS_PER_REQUEST} tokens per request.",
            param="input",
            code="max_tokens_per_request",
        )

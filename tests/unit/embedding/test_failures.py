from __future__ import annotations

import pytest

from indexmill.contracts.errors import (
    ErrorCode,
    IndexmillError,
    PermanentError,
    Refused,
    Trait,
    TransientError,
    codes,
    failure,
)
from indexmill.embedding.adapters.openai_embedder import status_failure
from indexmill.embedding.worker import is_of_one_document

OUTAGES = codes(Trait.OUTAGE)


@pytest.mark.shows("R062")
@pytest.mark.parametrize("status", [400, 405, 413, 422])
def test_a_request_that_is_wrong_stays_wrong(status: int) -> None:
    error = status_failure(status, too_long=False, retry_after=9)
    assert isinstance(error, PermanentError)
    assert (error.code, error.code in OUTAGES) == ("embedding_rejected", False)
    too_long = status_failure(status, too_long=True, retry_after=None)
    assert (too_long.code, too_long.retryable) == ("token_limit_exceeded", False)


@pytest.mark.shows("R062")
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_of_us_is_an_outage(status: int) -> None:
    error = status_failure(status, too_long=False, retry_after=9)
    assert (type(error), error.code) == (Refused, "embedding_unavailable")
    assert not is_of_one_document(error)


@pytest.mark.shows("R061")
@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_busy_or_broken_endpoint_is_tried_again_when_it_says(status: int) -> None:
    error = status_failure(status, too_long=True, retry_after=9)
    assert isinstance(error, TransientError)
    assert error.code == ("openai_rate_limit" if status == 429 else "embedding_unavailable")
    assert (error.retry_after, error.code in OUTAGES) == (9, True)


def test_what_one_document_causes_is_no_outage() -> None:
    for code in (ErrorCode.EMBEDDING_INVALID, ErrorCode.EMBEDDING_INCOMPLETE):
        assert is_of_one_document(failure(code))
        assert code not in OUTAGES
    assert not is_of_one_document(failure(ErrorCode.SEARCH_UNAVAILABLE))


@pytest.mark.parametrize(
    ("error", "of_document"),
    [
        (PermanentError(ErrorCode.CONTENT_CORRUPT, "x"), True),
        (TransientError(ErrorCode.STORAGE_UNAVAILABLE, "x"), False),
    ],
)
def test_codes_of_others_go_by_their_kind(error: IndexmillError, of_document: bool) -> None:
    assert is_of_one_document(error) == of_document

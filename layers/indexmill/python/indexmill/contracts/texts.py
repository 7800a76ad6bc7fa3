"""Strings of requests: identifiers without control characters, texts of documents, URLs."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from indexmill.contracts.errors import ErrorCode

MAX_URL_LENGTH: Final = 2048
CORPUS_NAME: Final = "[a-z0-9][a-z0-9-]{0,62}"
"""A regular expression."""
MAX_ID_LENGTH: Final = 100
MAX_TITLE_LENGTH: Final = 1000
_CONTROL: Final = re.compile("[\\x00-\\x1f\\x7f\ud800-\udfff\ufffe\uffff]")
_NOT_IN_DOCUMENTS: Final = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f\ud800-\udfff\ufffe\uffff]")
"""Beside tab and line ends, which documents have: what SQS, Postgres or a terminal does not take as text."""


def is_plain(text: str) -> bool:
    """Return whether `text` has no control character, unpaired surrogate or noncharacter."""
    return _CONTROL.search(text) is None


def clean(text: str) -> str:
    """Return a document's text with a space for each character that is no text; offsets stay right."""
    return _NOT_IN_DOCUMENTS.sub(" ", text)


def _plain(text: str) -> str:
    if not is_plain(text):
        raise ValueError("Control characters are not allowed here.")
    return text


def _short_enough(url: str) -> str:
    if len(url) > MAX_URL_LENGTH:
        raise PydanticCustomError(
            ErrorCode.URL_INVALID.value, "A URL has at most {most} characters.", {"most": MAX_URL_LENGTH}
        )
    return url


PlainText = Annotated[str, AfterValidator(_plain)]
Identifier = Annotated[PlainText, Field(min_length=1, max_length=MAX_ID_LENGTH)]
"""A name of something: of a job, a message, a batch, a code."""
DocumentText = Annotated[str, AfterValidator(clean)]
Title = Annotated[DocumentText, Field(max_length=MAX_TITLE_LENGTH)]
UrlText = Annotated[
    str, Field(min_length=1, json_schema_extra={"maxLength": MAX_URL_LENGTH}), AfterValidator(_short_enough)
]
"""What a URL is compared with; too long a one is `url_invalid`."""
Url = Annotated[UrlText, Field(json_schema_extra={"pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"})]
"""A URL as it was sent. The rules of platform/security/urls.py decide about the rest."""
CorpusName = Annotated[str, Field(json_schema_extra={"pattern": f"^{CORPUS_NAME}$"})]
"""Another one is `corpus_name_invalid`: see contracts/identity.py."""

Doubt = Literal["login_required", "soft_404"]
"""Why a page with text counts as one without content; its caller may know better."""


def _each_once(doubts: list[Doubt] | None) -> list[Doubt] | None:
    return sorted(set(doubts)) if doubts else None


Accept = Annotated[Annotated[list[Doubt], Field(max_length=2)] | None, AfterValidator(_each_once)]
"""Doubts despite which a page is read, in order; None for none."""

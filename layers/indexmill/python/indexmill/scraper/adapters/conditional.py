"""Conditional requests: the headers that an answer is known by, and those that ask for a change of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from indexmill.scraper.ports import Validators

_ETAG: Final = re.compile(r'(W/)?"[\x21\x23-\x7e]{0,250}"')
_DATE: Final = re.compile(r"[A-Za-z0-9,: +-]{1,64}")


def validators_of(url: str, headers: Mapping[str, str]) -> Validators:
    """Return an answer's validators; a malformed one counts as none, since it is sent back to the site."""
    etag, date = headers.get("etag", "").strip(), headers.get("last-modified", "").strip()
    return Validators(etag if _ETAG.fullmatch(etag) else None, date if _DATE.fullmatch(date) else None, url)


def conditions_of(known: Validators) -> dict[str, str]:
    """Return the headers of a conditional request; a site that reads both goes by the ETag (RFC 9110)."""
    given = {"If-None-Match": known.etag, "If-Modified-Since": known.last_modified}
    return {name: value for name, value in given.items() if value}

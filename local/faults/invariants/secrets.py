"""I12: no key appears anywhere, and document text only where it belongs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.faults.invariants.violation import Database, Violation

DOCUMENT_STORE: Final = frozenset(
    {"chunks.text", "chunks.context", "outbox.payload", "dead_letters.body", "messages", "content"}
)
"""Columns, and kinds of other places, that may contain a document's text."""
URL_STORE: Final = frozenset(
    {
        *("jobs.url", "jobs.canonical_url", "jobs.raw_ref", "jobs.duplicate_of", "documents.url"),
        *("crawls.plan", "page_links.links"),
        *("outbox.payload", "dead_letters.body", "messages", "content"),
    }
)
"""Likewise, that may contain the query of a URL."""
_COLUMNS: Final = """
SELECT c.table_name, c.column_name FROM information_schema.columns AS c
JOIN information_schema.tables AS t USING (table_schema, table_name)
WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'
  AND c.data_type IN ('text', 'jsonb', 'json', 'character varying', 'ARRAY')
"""


@dataclass(frozen=True, slots=True)
class Canary:
    """Text that must not appear outside the allowed places."""

    name: str
    text: str
    allowed_in: Collection[str] = ()
    """Columns, as `table.column`, and kinds of other places."""
    pattern: str = ""
    """Pattern for the text when its notation varies; not searched for in the database."""

    def occurs_in(self, text: str) -> bool:
        """Return whether the text contains it."""
        return re.search(self.pattern, text) is not None if self.pattern else self.text in text


def leaks(
    database: Database, canaries: Iterable[Canary], logs: Path, others: Iterable[tuple[str, str]]
) -> list[Violation]:
    """Search for each canary in every log below `logs`, every column, and `others`.

    `others` are texts by name, whose first word is the kind of place.
    """
    searched = list(canaries)
    places = [
        *_in_files(searched, logs),
        *_in_database([each for each in searched if not each.pattern], database),
        *(
            (each, name)
            for name, text in others
            for each in forbidden_in(searched, name)
            if each.occurs_in(text)
        ),
    ]
    return [Violation("I12", canary.name, f"occurs in {place}") for canary, place in places]


def forbidden_in(canaries: Iterable[Canary], name: str) -> list[Canary]:
    """Return the canaries that must not appear in a place of this name, whose first word is its kind."""
    return [each for each in canaries if name.partition(" ")[0] not in each.allowed_in]


def _in_files(canaries: list[Canary], folder: Path) -> Iterator[tuple[Canary, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_text(encoding="utf-8", errors="replace")
            for each in canaries:
                if each.occurs_in(content):
                    yield each, path.relative_to(folder).as_posix()


def _in_database(canaries: list[Canary], database: Database) -> Iterator[tuple[Canary, str]]:
    for table, column in database.execute(_COLUMNS).fetchall():
        name = f"{table}.{column}"
        searched = [each for each in canaries if name not in each.allowed_in]
        if not searched:
            continue
        # One statement for all: each reads the whole column.
        counts = ", ".join(["count(*) FILTER (WHERE position(%s IN content) > 0)"] * len(searched))
        statement = f'SELECT {counts} FROM (SELECT "{column}"::text AS content FROM "{table}") AS found'  # noqa: S608
        row = database.execute(statement.encode(), [each.text for each in searched]).fetchone() or ()
        yield from ((each, name) for each, count in zip(searched, row, strict=True) if count)

"""I12: no key, and no text of a document where it does not belong."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.faults.promises.violation import Database, Violation

DOCUMENT_STORE: Final = frozenset({"chunks.text", "chunks.context", "outbox.payload", "dead_letters.body"})
"""Columns that may hold a document's text."""
_COLUMNS: Final = """
SELECT c.table_name, c.column_name FROM information_schema.columns AS c
JOIN information_schema.tables AS t USING (table_schema, table_name)
WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'
  AND c.data_type IN ('text', 'jsonb', 'json', 'character varying', 'ARRAY')
"""


@dataclass(frozen=True, slots=True)
class Canary:
    """A text that is told to nobody but those it is for."""

    name: str
    text: str
    may_be_in: Collection[str] = ()
    """Columns, as `table.column`."""


def nothing_told(
    database: Database, canaries: Iterable[Canary], logs: Path, others: Mapping[str, str]
) -> list[Violation]:
    """Look for each canary in every log below `logs`, every column, and `others` (text by what it is)."""
    sought = list(canaries)
    places = [
        *_in_files(sought, logs),
        *_in_database(sought, database),
        *((each, name) for name, text in others.items() for each in sought if each.text in text),
    ]
    return [Violation("I12", canary.name, f"stands in {place}") for canary, place in places]


def _in_files(canaries: list[Canary], folder: Path) -> Iterator[tuple[Canary, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            for each in canaries:
                if each.text.encode() in content:
                    yield each, path.relative_to(folder).as_posix()


def _in_database(canaries: list[Canary], database: Database) -> Iterator[tuple[Canary, str]]:
    for table, column in database.execute(_COLUMNS).fetchall():
        name = f"{table}.{column}"
        for each in canaries:
            if name in each.may_be_in:
                continue
            statement = f'SELECT count(*) FROM "{table}" WHERE position(%s IN "{column}"::text) > 0'  # noqa: S608
            row = database.execute(statement.encode(), (each.text,)).fetchone()
            if row and row[0]:
                yield each, name

"""Which generations of a document may be published: the catalogue row decides, under its lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from indexmill.contracts.messages import StageResult
from indexmill.orchestrator.adapters import job_sql
from indexmill.orchestrator.changes import Ledger
from indexmill.orchestrator.pipeline import BY_NAME
from indexmill.orchestrator.ports import JobState, OutboxRow
from indexmill.orchestrator.resend import Renewal, renewed
from indexmill.platform.postgres.database import Connection

# Locks the row, or makes it: nobody publishes the document until we are through. In the order of ids.
# A row that was made for this alone is thrown away when no message of before can be left.
_LOOK: Final = """
INSERT INTO documents (document_id, corpus_id, url, fenced_at)
SELECT DISTINCT ON (one.document_id) one.document_id, corpora.id, one.url, now()
FROM unnest(%s::text[], %s::text[], %s::text[]) AS one(document_id, corpus_key, url)
JOIN corpora ON corpora.corpus_key = one.corpus_key
ORDER BY one.document_id
ON CONFLICT (document_id) DO UPDATE SET min_generation = documents.min_generation
RETURNING document_id, published
"""
_CLOSE: Final = """
UPDATE documents SET min_generation = greatest(min_generation, closed.generation + 1),
    fenced_at = CASE WHEN published IS NULL THEN now() END
FROM unnest(%s::text[], %s::bigint[]) AS closed(document_id, generation)
WHERE documents.document_id = closed.document_id
"""


def look(
    connection: Connection, states: Mapping[str, JobState], results: Sequence[StageResult]
) -> dict[str, JobState]:
    """Return `states`, those whose embedding failed with what search sees; their documents are locked."""
    failed = {
        result.job_id or "" for result in results if (result.stage, result.status) == ("embedding", "failed")
    }
    return dict(states) | seen(connection, (states[each] for each in failed if each in states))


def seen(connection: Connection, states: Iterable[JobState]) -> dict[str, JobState]:
    """Lock the documents for which a message that publishes is out, and say whether search sees its work."""
    issued = [state for state in states if state.issued is not None]
    if not issued:
        return {}
    targets = [state.target for state in issued]
    columns = (
        [target.document_id for target in targets],
        [target.corpus_key for target in targets],
        [target.url for target in targets],
    )
    published: dict[str, int | None] = dict(connection.execute(_LOOK, columns).fetchall())
    return {
        state.job_id: replace(
            state, visible=(published.get(state.target.document_id) or 0) >= (state.issued or 0)
        )
        for state in issued
    }


def close(connection: Connection, fences: Mapping[str, int]) -> None:
    """Refuse these generations, by document id, and all before them."""
    if fences:
        connection.execute(_CLOSE, (list(fences), list(fences.values())))


def send_again(connection: Connection, ledger: Ledger) -> list[OutboxRow]:
    """Commit the messages of stages that were fenced out, each with a fresh generation."""
    rows = []
    for job_id, again in ledger.again.items():
        state = ledger.states[job_id]
        kept: dict[str, str] = dict(connection.execute(job_sql.KEPT, (job_id,)).fetchall())
        stage = BY_NAME[state.status.value]
        renewal = Renewal(again.message_id, state.attempt, again.generation)
        row = renewed(state, stage.name, kept.get(stage.name), renewal)
        columns = ("id", "job_id", "caller_id", "attempt", "stage", "kind", "payload")
        values = {name: getattr(row, name) for name in columns}
        connection.execute(job_sql.RESEND, {**values, "generation": again.generation})
        rows.append(row)
    return rows

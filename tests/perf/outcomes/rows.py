"""Rows and answers of one order, less ids, times and what depends on the transport of chunk work."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tests.perf.outcomes.order import Order

_JOBS: Final = """
SELECT id, status, url, corpus_name, failed_stage, error, attempt, batch_id IS NOT NULL AS batched,
    corpus_key, document_id, canonical_url, title, chunk_count, job_type, priority, tier, forced,
    payload_digest, replay_of, generation, raw_ref, determinism, tries, next_retry_at, retry_cause,
    admitted_at, blocked_by, ended_at, resume_stage, has_dependents
FROM jobs WHERE caller_id = %s
"""
_HISTORY: Final = """
SELECT job_id, h.attempt, from_status, to_status, cause, detail, h.tries, h.job_type, h.payload_digest
FROM job_history AS h JOIN jobs ON jobs.id = job_id WHERE caller_id = %s ORDER BY seq
"""
_MESSAGES: Final = "SELECT job_id, attempt, stage, payload FROM outbox WHERE caller_id = %s"
_DOCUMENTS: Final = """
SELECT document_id, url, title, content_sha256, published, min_generation, chunk_count, job_id, model,
    dimension, fenced_at
FROM documents JOIN corpora ON corpora.id = corpus_id WHERE caller_id = %s ORDER BY document_id
"""
_DEAD_LETTERS: Final = """
SELECT queue, cause, stage, attempt, receive_count, job_id FROM dead_letters
WHERE job_id IN (SELECT id FROM jobs WHERE caller_id = %s) AND coalesce(stage, '') <> 'chunking'
"""
_TIMES: Final = frozenset(
    [
        "at",
        "created_at",
        "updated_at",
        "expected_by",
        "next_retry_at",
        "next_eligible_at",
        "admitted_at",
        "ended_at",
        "fenced_at",
    ]
)
_UNCOMPARED: Final = frozenset(
    ["message_id", "request_id", "batch_id", "schema", "msg_version", "position", "elapsed_ms", "worker"]
)
_GENERATIONS: Final = frozenset(("generation", "published", "min_generation"))
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CHUNK_WORK: Final = ("text", "text_ref", "title")
"""The document of a chunk message, in the synchronous call's item and in the queue's task alike."""


def outcome(order: Order) -> dict[str, Any]:
    """Return everything that `order` ended in."""
    system, caller_id = order.system, order.system.caller_id
    history = system.rows(_HISTORY, [caller_id])
    for row in history:
        if row["cause"].startswith("chunking "):
            # The synchronous call's result did not count tries.
            del row["tries"]
    messages = [_message(row) for row in system.rows(_MESSAGES, [caller_id])]
    found: dict[str, Any] = {
        "answers": order.answers,
        "get": [system.job(job_id) for job_id in order.ids],
        "jobs": _by_ordinal(system.rows(_JOBS, [caller_id]), order.ids, "id"),
        "history": _by_ordinal(history, order.ids, "job_id"),
        "payloads": messages,
        "documents": system.rows(_DOCUMENTS, [caller_id]),
        "dead_letters": system.rows(_DEAD_LETTERS, [caller_id]),
        "searches": {text: system.search(text) for texts in order.system.texts().values() for text in texts},
    }
    generations = sorted({number for number in _numbers(found) if number})
    normal: dict[str, Any] = _normalised(
        found, {job_id: at for at, job_id in enumerate(order.ids)}, generations
    )
    for unordered in ("payloads", "dead_letters"):
        # Kept once for each time it was issued; how often depends on what was lost, not on what it says.
        normal[unordered] = sorted({json.dumps(each, sort_keys=True) for each in normal[unordered]})
    return {
        "order": order.draws.order,
        "class": order.class_,
        "chunk_faults": order.chunk_faults > 0,
        "trace": order.trace,
        **normal,
    }


def _by_ordinal(rows: list[dict[str, Any]], ids: list[str], column: str) -> list[dict[str, Any]]:
    """Return rows by job: within one job they keep their order, between jobs of one batch there is none."""
    return sorted(rows, key=lambda row: ids.index(row[column]))


def _message(row: dict[str, Any]) -> dict[str, Any]:
    payload = json.loads(row["payload"])
    if row["stage"] == "chunking":
        payload = {name: payload.get(name) for name in _CHUNK_WORK}
    return {**row, "payload": {name: value for name, value in payload.items() if value is not None}}


def _numbers(found: Any) -> set[int]:
    if isinstance(found, dict):
        own = {value for name, value in found.items() if name in _GENERATIONS and isinstance(value, int)}
        return own.union(*(_numbers(value) for value in found.values()))
    return set().union(*map(_numbers, found)) if isinstance(found, list) else set()


def _normalised(found: Any, ordinals: dict[str, int], generations: list[int]) -> Any:
    if isinstance(found, dict):
        return {
            name: _field(name, value, ordinals, generations)
            for name, value in found.items()
            if name not in _UNCOMPARED
        }
    if isinstance(found, list | tuple):
        return [_normalised(each, ordinals, generations) for each in found]
    if isinstance(found, str):
        return _UUID.sub(lambda id_: f"job-{ordinals[id_[0]]}" if id_[0] in ordinals else "<id>", found)
    return found


def _field(name: str, value: Any, ordinals: dict[str, int], generations: list[int]) -> Any:
    if name in _TIMES:
        return None if value is None else "<time>"
    if name in _GENERATIONS and isinstance(value, int) and value:
        # Numbers have gaps that depend on how many results there were; their order matters.
        return f"generation-{generations.index(value)}"
    return _normalised(value, ordinals, generations)

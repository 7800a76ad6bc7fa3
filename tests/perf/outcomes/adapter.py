"""Adapter from the recorder to the model's system: the only module here that knows names that move.

It runs on the commit before the chunk queue (0ceb7dd) and on those after it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

from indexmill.chunking.worker import ChunkDocuments
from indexmill.contracts.errors import CallerError, ErrorCode, TransientError
from local.backends.postgres import EmbeddedPostgres
from sql.migrate import migrate
from tests.support import jobs as support


def _first(*names: str) -> Any:
    """Return the first module of these that there is: today's name before yesterday's."""
    for name in names:
        with suppress(ModuleNotFoundError):
            return import_module(name)
    raise ModuleNotFoundError(f"none of {names}")


_MODEL: Final = "tests.faults.model"
_system: Any = _first(f"{_MODEL}.system_under_test", f"{_MODEL}.product")
_backends: Any = _first(f"{_MODEL}.backends", f"{_MODEL}.grounds")
Killed: type[BaseException] = _first(f"{_MODEL}.crash_injector", f"{_MODEL}.fuse").Killed
InMemoryBlobs: Any = _first("tests.twins.blobs", "indexmill.testing.blobs").InMemoryBlobs
WordTokenizer: Any = _first("tests.twins.tokenizer", "indexmill.testing.tokenizer").WordTokenizer

Effect = Literal["commit", "send", "publish"]
Crash = tuple[Effect, bool]
"""At the first effect of this kind; True: the effect still happens."""

CORPUS: Final = "model"
_EFFECTS: Final[dict[str, Effect]] = {
    "submit": "commit",
    "apply": "commit",
    "cancel": "commit",
    "retry": "commit",
    "record_dead_letter": "commit",
    "transaction": "commit",
    "send": "send",
    "publish": "publish",
}
"""By the name of the adapter's method."""

MOST_CRASHES: Final = 3
"""Of workers that had the same message: then it is poison."""
ChunkFault = Literal["none", "crash", "lost"]
PlanChunk = Callable[[str], ChunkFault]
"""Job id → what goes wrong at this try of its chunk work. Counts the try."""


class System:
    """One caller's pipeline on Postgres, driven step by step. Every act answers with JSON-like data."""

    def __init__(self, database_url: str, number: int, plan_chunk: PlanChunk) -> None:
        """`number` names the caller and its ids."""
        self._database = _backends.Database(database_url)
        _system._callers = itertools.count(number)
        make = getattr(_system, "SystemUnderTest", None) or _system.Product
        self._product: Any = make(_backends.postgres(self._database))
        self._crash: Crash | None = None
        crash_injector = getattr(self._product, "crash_injector", None) or self._product.fuse
        crash_injector.around = self._around
        self._plan_chunk = plan_chunk
        self.caller_id: str = self._product.caller.caller_id
        self.has_chunk_queue = "chunk" in self.queues
        self._restore = (lambda: None) if self.has_chunk_queue else _patch_synchronous_chunker(plan_chunk)

    @property
    def queues(self) -> dict[str, Any]:
        """Return the queues by name: scrape, chunk if there is one, embed, callbacks, and dead letters."""
        found: dict[str, Any] = getattr(self._product, "queues", None) or self._product.lines
        return found

    def page(self, kind: str) -> str:
        """Return a URL of the caller's site; `kind` as for the model: new, shaky, same, changed, twice."""
        url: str = self._product._site.page(kind)
        return url

    def texts(self) -> dict[str, list[str]]:
        """Return every sentence that a page ever had, by URL."""
        found: dict[str, list[str]] = self._product._site.texts
        return found

    def submit(self, fields: dict[str, Any], key: str | None, crash: Crash | None) -> Any:
        """Submit `fields` (of the request) under idempotency key `key`."""
        request = _system.SubmitRequest.model_validate({"corpus_name": CORPUS, **fields})
        return self._act(crash, lambda: self._product._submit(self._product.caller, request, "request", key))

    def cancel(self, job_id: str, crash: Crash | None) -> Any:
        """Cancel a job."""
        return self._act(crash, lambda: self._product._cancel(self._product.caller, job_id, "model"))

    def retry(self, job_id: str, crash: Crash | None) -> Any:
        """Retry a job."""
        return self._act(crash, lambda: self._product._retry.one(self._product.caller, job_id))

    def replay(self, job_id: str, *, stored: bool, crash: Crash | None) -> Any:
        """Replay a job."""
        request = _system.ReplayRequest(source="stored" if stored else "fetch")
        caller = self._product.caller
        return self._act(crash, lambda: self._product._replay.replay(caller, job_id, request, "request"))

    def tick(self, seconds: int, crash: Crash | None) -> bool:
        """Let time pass and run the sweeper; return False if it was killed."""
        return self._act(crash, lambda: self._product.tick(seconds)) != "killed"

    def handle(self, name: str, picked: Sequence[Any], crash: Crash | None) -> set[str] | None:
        """Let the consumer of queue `name` handle messages; return the ids that may leave, None: killed."""
        leaving: set[str] = set()
        done = self._act(crash, lambda: leaving.update(self._product.handle(name, picked)))
        return None if done == "killed" else leaving

    def statuses(self) -> dict[str, str]:
        """Return the status of each job of the caller, by id."""
        found: dict[str, str] = self._product.jobs()
        return found

    def job(self, job_id: str) -> dict[str, Any]:
        """Return the job as GET answers."""
        store = (getattr(self._product, "backend", None) or self._product.ground).store
        stored_job = getattr(support, "stored_job", None)
        found = stored_job(store, self.caller_id, job_id) if stored_job else store.get(self.caller_id, job_id)
        dumped: dict[str, Any] = found.model_dump(mode="json")
        return dumped

    def search(self, text: str) -> list[tuple[str, str]]:
        """Return URL and text of each chunk that keyword search finds."""
        return sorted((hit.source_url, hit.text) for hit in self._product._find(text))

    def rows(self, statement: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the rows of a query by column name."""
        cursor = self._database.connection().execute(statement, values)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def close(self) -> None:
        """Release the connection and leave nothing to send for the next order."""
        self._product.close()
        self._database.close()
        self._restore()

    def _act(self, crash: Crash | None, work: Callable[[], Any]) -> Any:
        self._crash = crash
        try:
            answer = work()
        except CallerError as error:
            return {"refused": str(error.code)}
        except Killed:
            return "killed"
        finally:
            self._crash = None
        return answer.model_dump(mode="json") if hasattr(answer, "model_dump") else answer

    def _around(self, effect: Callable[..., Any]) -> Callable[..., Any]:
        kind = _EFFECTS.get(getattr(effect, "__name__", ""))

        def fused(*given: Any, **named: Any) -> Any:
            crash = self._crash
            fatal = crash is not None and crash[0] == kind
            if fatal and crash is not None and not crash[1]:
                raise Killed
            result = effect(*given, **named)
            if fatal:
                raise Killed
            return result

        return fused


def _patch_synchronous_chunker(plan_chunk: PlanChunk) -> Callable[[], None]:
    """Express faults of chunk work at the synchronous call: the function crashes, or its caller is killed.

    The use case itself replaces the fake that splits at blank lines: the queue's worker calls it too. Returns
    what restores the fake.
    """
    chunk_documents: Any = ChunkDocuments(WordTokenizer(), InMemoryBlobs())

    def chunk(self: Any, call: Any) -> Any:
        faults = [plan_chunk(item.job_id) for item in call.items if item.job_id is not None]
        if "lost" in faults:
            raise Killed
        if "crash" in faults:
            raise TransientError(ErrorCode.CHUNKING_UNAVAILABLE, "The Chunking service failed.")
        return chunk_documents.call(call)

    twin: Any = getattr(support, "TwinChunker")  # noqa: B009 - there is none any more where there is a queue
    original, twin.chunk = twin.chunk, chunk
    return lambda: setattr(twin, "chunk", original)


@contextmanager
def migrated_database() -> Iterator[str]:
    """Yield the URL of a database with all migrations, on an embedded server of its own."""
    logging.disable(logging.CRITICAL)
    with TemporaryDirectory() as folder:
        server = EmbeddedPostgres(Path(folder))
        url = server.start()
        try:
            migrate(url)
            yield url
        finally:
            server.stop()
            server.delete()

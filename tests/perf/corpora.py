"""Benchmark of corpora: lists, figures and verification of a large one, on a real Postgres.

    python -m tests.perf.corpora --documents 100000

One corpus of so many documents with three chunks each, and 200 small corpora. Each answer is that of the
function's handler: request guard aside, everything between gateway and database. Prints p50 and p95.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from indexmill.contracts.identity import corpus_key
from indexmill.embedding.adapters.pgvector.corpora import PostgresCorpora
from indexmill.embedding.api import corpora_routes
from indexmill.embedding.corpora import ReadCorpora
from indexmill.embedding.verify import VerifyCorpus
from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.observability import Observability
from indexmill.platform.postgres.database import Connection, Database
from indexmill.platform.time import SystemClock
from local.backends.postgres import EmbeddedPostgres, create_database
from sql.migrate import migrate
from tests.perf.machine import Watch
from tests.support.events import FakeContext, api_event, caller_claims

CALLER: Final = "0" * 16
CHUNKS: Final = 3
SMALL: Final = 200
TIMES: Final = 200
LIMIT_MS: Final = 100.0
FILL: Final = (
    "INSERT INTO spaces (model, dimension) VALUES ('bench', 8)",
    """INSERT INTO documents
           (document_id, corpus_id, url, title, published, chunk_count, model, dimension)
       SELECT encode(sha256(n::text::bytea), 'hex'), 1, 'https://example.com/' || n, 'Page ' || n, n,
           %(chunks)s, 'bench', 8
       FROM generate_series(1, %(documents)s) AS n""",
    """INSERT INTO chunks (id, corpus, document, tokens, words, terms, analyzer_version, chunk_id, language,
           context, text)
       SELECT n, 1, (n - 1) / %(chunks)s + 1, 200, 150, 0, 1, sha256(n::text::bytea), 'en', 'Guide',
           repeat('words ', 150)
       FROM generate_series(1, %(documents)s * %(chunks)s) AS n""",
    """INSERT INTO memberships
       SELECT (n - 1) / %(chunks)s + 1, (n - 1) / %(chunks)s + 1, n, (n - 1) %% %(chunks)s, 0, 900
       FROM generate_series(1, %(documents)s * %(chunks)s) AS n""",
    """INSERT INTO vectors SELECT 1, 1, n, '[1,0,0,0,0,0,0,0]'
       FROM generate_series(1, %(documents)s * %(chunks)s) AS n""",
    """INSERT INTO corpus_totals
           (corpus, stripe, documents, chunks, words, bytes, first_chunk, last_chunk, indexed_at)
       SELECT 1, stripe, part * %(documents)s, part * %(documents)s * %(chunks)s,
           part * %(documents)s * %(chunks)s * 150, part * %(documents)s * %(chunks)s * 900, 1,
           %(documents)s * %(chunks)s, now()
       FROM (SELECT stripe, (stripe = 0)::int AS part FROM generate_series(0, 15) AS stripe) AS stripes""",
    "ANALYZE",
)


def fill(connection: Connection, documents: int) -> None:
    """Write the corpora."""
    for name in ("large", *(f"small-{number:03}" for number in range(SMALL))):
        values = (corpus_key(CALLER, name), CALLER, name)
        connection.execute("INSERT INTO corpora (corpus_key, caller_id, name) VALUES (%s, %s, %s)", values)
    for statement in FILL:
        connection.execute(statement, {"documents": documents, "chunks": CHUNKS})


class Service:
    """The read routes as the function has them."""

    def __init__(self, database: Database) -> None:
        rows, observability = PostgresCorpora(database), Observability("embedding")
        verify = VerifyCorpus(rows, rows, SystemClock(), limit_s=60)
        app = create_app([corpora_routes(ReadCorpora(rows), verify)], observability)
        self._handle = lambda_handler(app, observability)

    def __call__(self, path: str, method: str = "GET", **query: str) -> str:
        event = api_event(method, path, caller=caller_claims(CALLER), query=query or None)
        answer = self._handle(event, FakeContext())
        assert answer["statusCode"] == 200, answer["body"]
        return str(answer["body"])


def show(label: str, ask: Callable[[], Any]) -> bool:
    """Print how long one request takes, and return whether it keeps the limit."""
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        ask()
        took.append(1000 * (time.perf_counter() - began))
    cuts = quantiles(took, n=100, method="inclusive")
    print(f"{label:52} p50 {cuts[49]:6.1f} ms  p95 {cuts[94]:6.1f} ms", flush=True)
    return cuts[94] <= LIMIT_MS


def main() -> None:
    """Run the benchmark; the exit status is 1 when an answer is too slow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=100_000)
    documents: int = parser.parse_args().documents
    machine = Watch()
    asyncio.set_event_loop(asyncio.new_event_loop())
    with tempfile.TemporaryDirectory(prefix="indexmill-bench-") as folder:
        server = EmbeddedPostgres(Path(folder))
        try:
            url = create_database(server.start(), "bench")
            migrate(url)
            database = Database(url)
            fill(database.connection(), documents)
            print(f"{documents:,} documents, {documents * CHUNKS:,} chunks, {SMALL + 1} corpora")
            kept = measure(Service(database))
            database.close()
        finally:
            server.delete()
    print("\n".join(machine.lines()))
    raise SystemExit(0 if kept else 1)


def measure(service: Service) -> bool:
    """Print each route's times and return whether all keep the limit."""
    corpora, large = "/embedding/corpora", "/embedding/corpora/large"
    kept = [
        show("GET /embedding/corpora/{name}", lambda: service(large)),
        show("GET /embedding/corpora (50)", lambda: service(corpora)),
        show("GET /embedding/corpora?limit=200", lambda: service(corpora, limit="200")),
    ]
    began = time.perf_counter()
    report = service(f"{large}/verify", "POST")
    print(f"POST …/verify of all: {time.perf_counter() - began:.1f} s, {report[-90:]}")
    return all(kept)


if __name__ == "__main__":
    main()

"""Benchmark of lists: documents of a corpus of 100,000 in pages, through the routes, on a real Postgres.

    python -m tests.perf.document_lists --documents 100000

Prints p50 and p95 of each request in milliseconds, right after the rows were written and after ANALYZE. The
promise is a p95 of at most 100 ms. Each document has two chunks; one in a thousand is stale or a PDF.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import quantiles
from typing import Any

import psycopg

from indexmill.contracts.identity import CorpusIsolation, corpus_key
from indexmill.embedding.adapters.pgvector.catalogue import PostgresCatalogue
from indexmill.embedding.adapters.pgvector.corpora import PostgresCorpora
from indexmill.embedding.api import corpora_routes, document_routes
from indexmill.embedding.browse import BrowseCorpus
from indexmill.embedding.corpora import ReadCorpora
from indexmill.platform.http.app import Handler, create_app, lambda_handler
from indexmill.platform.observability import Observability
from indexmill.platform.postgres.database import Database
from local.backends.postgres import EmbeddedPostgres, create_database
from sql.migrate import migrate
from tests.support.events import FakeContext, api_event, caller_claims

CALLER = "0123456789abcdef"
REQUESTS = 200
FILL = """
INSERT INTO documents (document_id, corpus_id, url, title, published, chunk_count, text_generation, text_rest,
    text_sha256, text_length, model, dimension, indexed_at, content_type, stale_since)
SELECT encode(sha256(n::text::bytea), 'hex'), c.id,
    format('https://%%s.example/%%s/%%s', n %% 7, n %% 100, n),
    'Title', 1, 2, 1, '', repeat('0', 64), 2000, 'm', 4, now(),
    CASE WHEN n %% 1000 = 3 THEN 'application/pdf' ELSE 'text/html' END,
    CASE WHEN n %% 1000 = 7 THEN now() END
FROM corpora AS c, generate_series(1, %s) AS n WHERE c.corpus_key = %s ORDER BY sha256(n::text::bytea)
"""
CHUNKS = """
INSERT INTO chunks SELECT 2 * d.id + o, d.corpus_id, d.id, 200, 150, 90, 1,
    sha256(format('%s-%s', d.id, o)::bytea), 'en', 'Context', repeat('Some words of a chunk. ', 40)
FROM documents AS d, generate_series(0, 1) AS o;
INSERT INTO memberships SELECT d.id, 1, 2 * d.id + o, o, 1000 * o, 1000 * o + 920
FROM documents AS d, generate_series(0, 1) AS o
"""


def handler_over(database: Database) -> Handler:
    """Build the routes, without a guard."""
    isolation, observability = CorpusIsolation.CALLER, Observability("bench", level="CRITICAL")
    browse = BrowseCorpus(PostgresCatalogue(database), isolation)
    routers = [
        document_routes(browse, observability),
        corpora_routes(ReadCorpora(PostgresCorpora(database), isolation)),
    ]
    return lambda_handler(create_app(routers, observability), observability)


def ask(handler: Handler, path: str, **query: str) -> tuple[float, dict[str, Any]]:
    """Return milliseconds and answer of one request."""
    event = api_event("GET", f"/embedding/corpora{path}", query=query or None, caller=caller_claims(CALLER))
    began = time.perf_counter()
    answer = handler(event, FakeContext())
    took = 1e3 * (time.perf_counter() - began)
    assert answer["statusCode"] == 200, answer["body"]
    return took, json.loads(answer["body"])


def measure(handler: Handler, ids: list[str]) -> Iterator[tuple[str, list[float]]]:
    """Yield what was asked with the milliseconds of each request."""
    draw, everything = random.Random(3), "/bench/documents"
    queries: dict[str, dict[str, str]] = {
        "first page of 50": {},
        "first page of 200": {"limit": "200"},
        "200 below a URL": {"limit": "200", "url_prefix": "https://3.example/42/"},
        "stale ones (1 in 1,000)": {"stale": "true"},
        "PDFs (1 in 1,000)": {"content_type": "application/pdf"},
        "of no type": {"content_type": "text/x-none"},
    }
    for what, query in queries.items():
        yield what, [ask(handler, everything, **query)[0] for _ in range(REQUESTS)]
    times, cursor = [], None
    for _ in range(REQUESTS):
        took, page = ask(handler, everything, limit="200", **({"cursor": cursor} if cursor else {}))
        times.append(took)
        cursor = page["next_cursor"]
    yield "page after page of 200", times
    chosen = draw.sample(ids, REQUESTS)
    yield "one document", [ask(handler, f"{everything}/{each}")[0] for each in chosen]
    yield "its chunks", [ask(handler, f"{everything}/{each}/chunks")[0] for each in chosen]
    yield "corpora and their figures", [ask(handler, "")[0] for _ in range(REQUESTS)]


def fill(url: str, count: int) -> list[str]:
    """Write a corpus of `count` documents beside a small one; return the ids of its documents."""
    key = corpus_key(CALLER, "bench")
    with psycopg.connect(url, autocommit=True) as connection:
        for name in ("bench", "small"):
            connection.execute(
                "INSERT INTO corpora (corpus_key, caller_id, name) VALUES (%s, %s, %s)",
                (corpus_key(CALLER, name), CALLER, name),
            )
        connection.execute(FILL, (count, key))
        connection.execute(CHUNKS)
        return [row[0] for row in connection.execute("SELECT document_id FROM documents").fetchall()]


def report(handler: Handler, ids: list[str], title: str) -> None:
    """Measure and print a table."""
    print(f"{title}:")
    for what, times in measure(handler, ids):
        cuts = quantiles(times, n=20)
        print(f"  {what:28} p50 {cuts[9]:6.1f}  p95 {cuts[18]:6.1f} ms")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--documents", type=int, default=100_000)
    options = parser.parse_args()
    asyncio.set_event_loop(asyncio.new_event_loop())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = EmbeddedPostgres(Path(folder) / "postgres")
        try:
            url = create_database(server.start(), "bench")
            migrate(url)
            ids = fill(url, options.documents)
            with closing(Database(url)) as database:
                handler = handler_over(database)
                report(
                    handler, ids, f"{len(ids):,} documents, without statistics, load {os.getloadavg()[0]:.1f}"
                )
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute("ANALYZE")
                report(handler, ids, "with statistics")
        finally:
            server.stop()


if __name__ == "__main__":
    main()

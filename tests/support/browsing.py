"""The routes of documents over a real index, asked as callers ask."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from indexmill.contracts.identity import CorpusIsolation
from indexmill.embedding.adapters.pgvector.catalogue import PostgresCatalogue
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.api import document_routes
from indexmill.embedding.browse import BrowseCorpus
from indexmill.platform.http.app import Handler, create_app, lambda_handler
from indexmill.platform.observability import Observability
from indexmill.platform.postgres.database import Database
from tests.support.events import FakeContext, api_event, caller_claims
from tests.support.index_builders import CALLER, target, version

OTHER = "fedcba9876543210"
URLS = [f"https://a.example/{name}" for name in ("b", "a", "a/1", "a/2", "Ä", "ab", "upper/A", "upper/a")]
IN_ORDER = sorted([*URLS, "upload:report.pdf"])


@dataclass
class Browsing:
    """The routes over an index."""

    url: str
    index: PgVectorIndex
    handler: Handler

    def get(self, path: str, caller: str = CALLER, **query: str | int) -> tuple[int, dict[str, Any]]:
        """Return status and body of the answer to a caller."""
        text = {name: str(value) for name, value in query.items()}
        event = api_event(
            "GET", f"/embedding/corpora/{path}", query=text or None, caller=caller_claims(caller)
        )
        answer = self.handler(event, FakeContext())
        return answer["statusCode"], json.loads(answer["body"])

    def urls(self, **query: str | int) -> list[str]:
        """Return the URLs of all pages of the list."""
        found: list[str] = []
        while True:
            status, page = self.get("default/documents", **query)
            assert status == 200, page
            assert page["count"] == len(page["documents"]) <= int(query.get("limit", 50))
            found += [each["url"] for each in page["documents"]]
            if page["next_cursor"] is None:
                return found
            query["cursor"] = page["next_cursor"]

    def change(self, statement: str, *values: object) -> None:
        """Change rows beside the service."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode(), values)


def handler_of(database: Database, isolation: CorpusIsolation) -> Handler:
    """Build the routes, without a guard."""
    observability = Observability("test", level="CRITICAL")
    browse = BrowseCorpus(PostgresCatalogue(database), isolation)
    return lambda_handler(create_app([document_routes(browse, observability)], observability), observability)


@contextmanager
def browsing_over(database_url: str) -> Iterator[Browsing]:
    """Yield the routes over the database, whose index has a document for each of `IN_ORDER`."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    database = Database(database_url)
    index = PgVectorIndex(database)
    index.publish([version(["alpha", "beta"], to=target(url)) for url in IN_ORDER])
    yield Browsing(database_url, index, handler_of(database, CorpusIsolation.CALLER))
    database.close()
    asyncio.set_event_loop(None)
    loop.close()

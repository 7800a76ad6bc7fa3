"""Two releases in one world: their site, database and queues, and jobs that one leaves to the other."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from aiohttp import web

from tests.support.aiohttp_server import served
from tests.support.embedding_endpoint import item, packed, vector
from tests.support.releases import Choose, Queues, Release

CALLER = {"caller_id": "0123456789abcdef", "internal": "false"}
ONE_AT_A_TIME = {"caller_id": "fedcba9876543210", "internal": "false", "tier": "pro"}
INTERNAL = {"caller_id": "feedfeedfeedfeed", "internal": "true"}
WHOLE_LIFE = ["pending", "scraping", "chunking", "embedding", "done"]
UNAVAILABLE = "http://127.0.0.1:9/123456789012/away"
"""URL of a queue on a port that refuses connections."""
KEY = {"Idempotency-Key": "key-of-the-job-that-is-done"}
IN_TURN = ["pending", "scraping", "chunking", "failed", "pending", "chunking", "embedding", "done"]
BEGUN = {
    # Where the older release left each job, with what it had not sent, and the job's whole life.
    "message to scrape": (["scraping"], WHOLE_LIFE),
    "result of scraping": (["scraping"], WHOLE_LIFE),
    "message to chunk": (["chunking"], WHOLE_LIFE),
    "result of chunking": (["chunking"], WHOLE_LIFE),
    "message to embed": (["embedding"], WHOLE_LIFE),
    "result of embedding": (["embedding"], WHOLE_LIFE),
    "unsent to scrape": (["scraping", "queue"], WHOLE_LIFE),
    "unsent to chunk": (["chunking", "queue"], WHOLE_LIFE),
    "unsent to embed": (["embedding", "queue"], WHOLE_LIFE),
    "waits for a job": (["pending", "queue, not admitted"], WHOLE_LIFE),
    "has the place": (["scraping"], WHOLE_LIFE),
    "waits for a place": (["pending", "queue, not admitted"], WHOLE_LIFE),
    "retried, waits for a place": (["pending", "queue, not admitted"], IN_TURN),
    "dead letter": (["scraping"], ["pending", "scraping", "failed"]),
    "done": (["done"], WHOLE_LIFE),
    "failed in scraping": (["failed"], ["pending", "scraping", "failed"] * 2),
    "canceled in scraping": (["failed"], ["pending", "scraping", "failed", *WHOLE_LIFE]),
    "canceled in chunking": (["failed"], IN_TURN),
    "canceled in embedding": (["failed"], [*WHOLE_LIFE[:4], "failed", "pending", "embedding", "done"]),
}
LEFT = """
SELECT jobs.id, status, outbox.kind || CASE WHEN claimed_until = 'infinity' THEN ', not admitted' ELSE '' END
FROM jobs LEFT JOIN outbox ON job_id = jobs.id AND sent_at IS NULL AND parked_at IS NULL
"""
STEPS = ("ScraperWorker", "scraping", "ChunkingWorker", "chunking", "EmbeddingWorker", "embedding")
"""The work of each stage, and its result's."""

Releases = tuple[Release, Release]
"""The older one and this one."""
BROKEN_CHAIN = """
SELECT job_id, seq FROM (
    SELECT h AS entry, h.job_id, h.seq,
        lag(h.hash, 1, '') OVER (PARTITION BY h.job_id ORDER BY h.seq) AS before
    FROM job_history h
) AS chain WHERE (entry).prev_hash <> before OR (entry).hash <> job_history_hash(entry)
"""
TABLE_FILES = """
SELECT relname::text, relfilenode::bigint FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


class Site:
    """Pages to index, the embedding endpoint, both counted, and Membership: a key is its list of scopes."""

    def __init__(self) -> None:
        self.address = ""
        self.fetched: Counter[str] = Counter()
        self.embedded: Counter[str] = Counter()
        self.app = web.Application(client_max_size=10**8)
        self.app.router.add_get("/{name}", self._page)
        self.app.router.add_post("/v1/embeddings", self._embeddings)
        self.app.router.add_post("/auth", self._claims)

    async def _claims(self, request: web.Request) -> web.Response:
        key = (await request.json())["api_key"]
        return web.json_response({"caller_id": "of-a-key", "scopes": json.loads(key)})

    async def _page(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name == "robots.txt":
            return web.Response(status=404)
        self.fetched[name] += 1
        if name.startswith("missing"):
            return web.Response(status=404)
        link = f'<a href="/{name.removeprefix("to-")}">on</a>' if name.startswith("to-") else ""
        words = f"<h1>About {name}</h1><p>These are the words of {name}.</p>{link}"
        text = f"<html><title>{name}</title>{words}</html>"
        return web.Response(text=text, content_type="text/html")

    async def _embeddings(self, request: web.Request) -> web.Response:
        texts = (await request.json())["input"]
        self.embedded.update(texts)
        data = [item(at, packed(vector(at))) for at in range(len(texts))]
        return web.json_response({"object": "list", "data": data})

    def embeddings_of(self, name: str) -> int:
        """Return how often the text of a page was embedded."""
        return sum(count for text, count in self.embedded.items() if f"the words of {name}." in text)


@contextmanager
def served_site() -> Iterator[Site]:
    """Serve the pages and the endpoint, and yield what counts their requests."""
    site = Site()
    with served(site.app) as site.address:
        yield site


class World:
    """Both releases, deployed on one database and one set of queues."""

    def __init__(self, url: str, stack: str, releases: Releases, site: Site) -> None:
        self.url, self.site = url, site
        self.old, self.new = releases
        self._stack = stack

    @classmethod
    def of(cls, release: Release, url: str, stack: str, site: Site) -> World:
        """Return a world in which one release alone is migrated and deployed."""
        release.migrate(url)
        world = cls(url, stack, (release, release), site)
        world.create(release)
        return world

    def create(self, release: Release) -> None:
        """Create the queues as a release has them, or update them, and deploy it."""
        self._resources = release.create(self._stack)
        self.queues = Queues(release.endpoint, self._resources, release)
        self.deploy(release)

    def deploy(self, release: Release, **changed: str) -> None:
        """Deploy a release, with variables of its functions' environments changed."""
        release.deploy(self._resources, self.url, **changed)

    def submit(
        self, release: Release, *names: str, caller: dict[str, str] = CALLER, **more: Any
    ) -> list[str]:
        """Submit a page for each name; returns the jobs' ids."""
        headers = more.pop("headers", None)
        body = {"urls": [f"{self.site.address}/{name}" for name in names], "corpus_name": "docs", **more}
        path = "/orchestrator/jobs"
        job_ids: list[str] = release.http("POST", path, body, caller=caller, headers=headers)["job_ids"]
        return job_ids

    def act(self, release: Release, job_id: str, action: str, body: Any = None, **more: Any) -> Any:
        """Post an action on a job; returns the answer."""
        caller = more.pop("caller", CALLER)
        return release.http("POST", f"/orchestrator/jobs/{job_id}/{action}", body, caller=caller, **more)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        with psycopg.connect(self.url) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def change(self, statement: str, *values: Any) -> None:
        """Run a statement that changes rows."""
        with psycopg.connect(self.url) as connection:
            connection.execute(statement.encode(), values)

    def statuses(self, *job_ids: str) -> list[str]:
        """Return the jobs' statuses."""
        found = dict(self.rows("SELECT id, status FROM jobs WHERE id = ANY(%s)", list(job_ids)))
        return [found[job_id] for job_id in job_ids]

    def life(self, job_id: str) -> list[str]:
        """Return the statuses that a job had, from its history."""
        found = self.rows("SELECT to_status FROM job_history WHERE job_id = %s ORDER BY seq", job_id)
        return [status for (status,) in found]

    def messages(self, job_id: str, *, sent: bool = True) -> list[tuple[str, int]]:
        """Return stage and attempt of the job's messages that are sent, or neither sent nor parked."""
        found = self.rows(
            "SELECT stage, attempt FROM outbox WHERE job_id = %s AND parked_at IS NULL"
            " AND (sent_at IS NOT NULL) = %s ORDER BY created_at, attempt",
            job_id,
            sent,
        )
        return [(stage, attempt) for stage, attempt in found]

    def expire_claims(self) -> None:
        """Let all claims of unsent messages expire, as half a minute does."""
        self.change(
            "UPDATE outbox SET claimed_until = now() WHERE sent_at IS NULL AND claimed_until < 'infinity'"
        )

    def sweep(self, release: Release) -> dict[str, int]:
        """Let all claims expire and run the sweeper once; it must not take anything for lost."""
        self.expire_claims()
        done: dict[str, int] = release.invoke("OrchestratorSweeper", {})
        assert (done["lost"], done["rescued"], done["parked"]) == (0, 0, 0)
        return done


def by(release: Release) -> Choose:
    """Let one release handle everything."""
    return lambda _function, _body: release


def names(count: int = 1) -> list[str]:
    """Return names for pages that no other test uses."""
    return [uuid.uuid4().hex for _ in range(count)]


class Begun:
    """Jobs that the older release left at every point of a job's life, by the names in BEGUN."""

    def __init__(self, world: World) -> None:
        self.pages: dict[str, str] = {}
        self.jobs: dict[str, str] = {}
        self._steps: dict[str, int] = {}
        self._world, self._old = world, world.old
        self._leave_in_flight()
        self._leave_unsent()
        self._leave_canceled()
        self._leave_waiting()
        world.deploy(self._old)

    def _submit(self, kind: str, steps: int, missing: str = "", **more: Any) -> None:
        """Submit a job, to be taken this many of STEPS far."""
        (page,) = names()
        self.pages[kind] = missing + page
        (self.jobs[kind],) = self._world.submit(self._old, self.pages[kind], **more)
        self._steps[self.jobs[kind]] = steps

    def _proceed(self, **changed: str) -> None:
        """Take all jobs as far as they are to go."""

        def choose(function: str, body: dict[str, Any]) -> Release | None:
            step = STEPS.index(function if function in STEPS else body["stage"])
            return self._old if step < self._steps[body["job_id"]] else None

        self._world.deploy(self._old, **changed)
        self._world.queues.drain(choose)

    def _leave_in_flight(self) -> None:
        self._submit("done", 6, headers=KEY)
        self._submit("failed in scraping", 2, missing="missing-")
        self._submit("message to scrape", 0)
        self._submit("result of scraping", 1)
        self._submit("message to chunk", 2)
        self._submit("result of chunking", 3)
        self._submit("message to embed", 4)
        self._submit("result of embedding", 5)
        self._submit("canceled in scraping", 0)
        self._submit("canceled in embedding", 4)
        self._submit("dead letter", 0)
        self._proceed()

    def _leave_unsent(self) -> None:
        self._submit("unsent to chunk", 2)
        self._submit("canceled in chunking", 2)
        self._submit("retried, waits for a place", 2, caller=ONE_AT_A_TIME)
        self._proceed(CHUNK_QUEUE_URL=UNAVAILABLE)
        self._submit("unsent to embed", 4)
        self._proceed(EMBED_QUEUE_URL=UNAVAILABLE)
        self._world.deploy(self._old, SCRAPE_QUEUE_URL=UNAVAILABLE)
        self._submit("unsent to scrape", 0)

    def _leave_canceled(self) -> None:
        self._world.deploy(self._old, CHUNK_QUEUE_URL=UNAVAILABLE)
        for kind in ("canceled in scraping", "canceled in chunking", "canceled in embedding"):
            self._world.act(self._old, self.jobs[kind], "cancel", {"reason": "a test"})

    def _leave_waiting(self) -> None:
        world, retried = self._world, self.jobs["retried, waits for a place"]
        world.act(self._old, retried, "cancel", {"reason": "a test"}, caller=ONE_AT_A_TIME)
        self._submit("has the place", 0, caller=ONE_AT_A_TIME)
        world.act(self._old, retried, "retry", caller=ONE_AT_A_TIME)
        self._submit("waits for a place", 0, caller=ONE_AT_A_TIME)
        self._submit("waits for a job", 0, depends_on=[self.jobs["message to scrape"]])
        world.queues.move_to_dlq("ScrapeQueue", "ScrapeDlq", self.jobs["dead letter"])

"""Paths that few jobs take: long documents, retries from the middle, dead letters, a new site."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from indexmill.client import Client, WaitTimeout
from indexmill.contracts.job import Job
from local.faults.cloud import Cloud
from tests.support.aiohttp_server import served
from tests.support.stack import RunningStack, eventually, index, indexmill

pytestmark = pytest.mark.e2e

CORPUS = "rare"
PAGE = "/collections/bookboat.html"
POOR_KEY = "a-key-for-two-jobs-at-a-time"
FILES = Path(__file__).parents[1] / "unit" / "scraper" / "files"
LOGIN = (
    b"<!doctype html><title>Sign in</title><h1>Sign in</h1><form><input type=password></form><p>Closed.</p>"
)
ROBOTS = "User-agent: *\nDisallow: /private"


class Pages:
    """A site of a test: texts by path, and how often each was asked for."""

    def __init__(self) -> None:
        self.texts = {"/robots.txt": ROBOTS, "/open": "All about the mill.", "/private": "Accounts."}
        self.files = {f"/{path.name}": path.read_bytes() for path in FILES.iterdir()}
        self.asked: Counter[str] = Counter()
        self.url = ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._serve)
        return app

    async def _serve(self, request: web.Request) -> web.Response:
        self.asked[request.path] += 1
        if request.path in self.files:
            return web.Response(body=self.files[request.path])
        return web.Response(text=self.texts[request.path])


@pytest.fixture(scope="module")
def pages(stack: RunningStack) -> Iterator[Pages]:
    made = Pages()
    with served(made.app(), stack.second_site_port) as made.url:
        yield made


@pytest.fixture(scope="module")
def rough_pages(rough_stack: RunningStack) -> Iterator[Pages]:
    made = Pages()
    with served(made.app(), rough_stack.second_site_port) as made.url:
        yield made


@pytest.fixture
def embeddings(rough_stack: RunningStack) -> Iterator[Callable[..., None]]:
    """Yield what sets the mode of the embedding endpoint; it is well again afterwards."""

    def set_mode(mode: str, **more: float) -> None:
        rough_stack.set_fault_mode("embeddings", mode=mode, **more)

    yield set_mode
    set_mode("ok")


@pytest.fixture
def rough_client(rough_stack: RunningStack) -> Iterator[Client]:
    with rough_stack.client() as opened:
        yield opened


@pytest.fixture
def poor(rough_stack: RunningStack) -> Iterator[Client]:
    """Yield a client that may have two jobs at a time."""
    keys = Path(rough_stack.state) / "membership-keys.json"
    known = json.loads(keys.read_text())
    keys.write_text(json.dumps({**known, POOR_KEY: {"caller_type": "user", "tier": "free"}}))
    with Client(rough_stack.gateway, POOR_KEY) as opened:
        yield opened


def slow(stack: RunningStack) -> str:
    return f"{stack.site}/slow?seconds=6&id={uuid.uuid4()}"


def requests_of(stack: RunningStack, path: str) -> int:
    return int(stack.stand_in_state("site")["requests"].get(path, 0))


def test_the_rules_of_a_new_site_are_read_once_for_all(
    http: httpx.Client, client: Client, pages: Pages
) -> None:
    found = [http.post("/scraper/scrape", json={"url": pages.url + path}) for path in ("/private", "/open")]
    assert [each.status_code for each in found] == [422, 200]
    assert found[0].json()["error"]["code"] == "robots_disallowed"
    # Another function reads what this one left in the table.
    assert index(client, f"{pages.url}/open", CORPUS).status == "done"
    refused = index(client, f"{pages.url}/private", CORPUS)
    assert refused.error is not None
    assert refused.error.code == "robots_disallowed"
    assert (pages.asked["/robots.txt"], pages.asked["/private"]) == (1, 0)


def test_documents_of_other_programs_become_searchable(
    stack: RunningStack, http: httpx.Client, client: Client, pages: Pages
) -> None:
    corpus = f"files-{uuid.uuid4().hex[:8]}"
    words = {
        "/rules.docx": "adult ticket price",
        "/wheel.pptx": "axle repairs",
        "/harvest.xlsx": "rye tons",
        "/year.epub": "ice breaks in spring",
    }
    jobs = client.submit([pages.url + path for path in words], corpus).job_ids or []
    assert [job.status for job in client.wait(jobs, 60)] == ["done"] * len(words)
    for path, query in words.items():
        body = {"query": query, "corpus_name": corpus, "top_k": 1}
        (hit,) = http.post("/embedding/search", json=body).json()["results"]
        assert hit["source_url"] == pages.url + path


def test_a_page_that_looks_like_a_log_in_is_read_wherever_its_caller_accepts_it(
    stack: RunningStack, http: httpx.Client, client: Client, pages: Pages
) -> None:
    pages.files["/account"] = LOGIN
    pages.files["/map.xml"] = f"<urlset><url><loc>{pages.url}/account</loc></url></urlset>".encode()
    url, accept = f"{pages.url}/account", ["login_required"]
    refused = http.post("/scraper/scrape", json={"url": url})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "login_required")
    assert "Closed." in (client.scrape(url, accept=accept).markdown or "")
    looks = [client.dry_run(url, CORPUS, **more).pages[0].error for more in ({}, {"accept": accept})]
    assert [each.code if each else None for each in looks] == ["login_required", None]
    made = client.submit(url, CORPUS, accept=accept).job_id
    batches = [
        each.batch_id
        for each in (
            client.crawl(url, f"{CORPUS}-crawl", accept=accept),
            client.sitemap(f"{pages.url}/map.xml", f"{CORPUS}-map", accept=accept),
        )
    ]
    assert [job.status for job in client.wait([made or ""], 60)] == ["done"]
    assert [client.wait_batch(each or "", 60).failed for each in batches] == [0, 0]
    shown = indexmill("submit", url, "--accept", "login_required", "--corpus", "cli", "--state", stack.state)
    assert (shown.returncode, "done" in shown.stdout) == (0, True), shown.stderr


def test_a_page_that_is_too_long_for_an_answer_is_refused_and_indexed(
    http: httpx.Client, pages: Pages
) -> None:
    pages.texts["/long"] = "All about the mill and the otters behind it.\n\n" * 100_000
    answer = http.post("/scraper/scrape", json={"url": f"{pages.url}/long"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "response_too_large")
    assert "POST /orchestrator/jobs" in answer.json()["error"]["hint"]


def test_many_queued_chunks_without_a_job_become_searchable(stack: RunningStack, http: httpx.Client) -> None:
    corpus, texts = f"queued-{uuid.uuid4().hex[:8]}", [f"Heron {n}. " * 100 for n in range(100)]
    body = {"url": f"{stack.site}/many", "texts": texts, "corpus_name": corpus}
    assert http.post("/embedding/enqueue", json=body).status_code == 202
    query = {"query": "heron", "corpus_name": corpus, "top_k": 100}

    def found() -> list[dict[str, Any]] | None:
        answer = http.post("/embedding/search", json=query)
        # The corpus is there a moment before its first document.
        return answer.json()["results"] or None if answer.status_code == 200 else None

    assert {hit["text"] for hit in eventually(found, "the texts can be found")} == set(texts)


def test_a_long_dead_letter_is_kept_whole(stack: RunningStack) -> None:
    cloud, body = Cloud(asdict(stack)), f"{uuid.uuid4()} is no message" + "!" * 40_000
    cloud.sqs.send_message(QueueUrl=stack.resources["CallbacksDlq"], MessageBody=body)

    def kept() -> Any:
        with cloud.database() as database:
            statement = "SELECT body, body_ref FROM dead_letters WHERE starts_with(%s, body)"
            return database.execute(statement, (body,)).fetchone()

    beginning, ref = eventually(kept, "it is kept")
    assert beginning == body[:2_000]
    whole = cloud.s3.get_object(Bucket=stack.resources["ContentBucket"], Key=ref["key"])["Body"].read()
    assert whole.decode() == body


@pytest.mark.parametrize(
    ("function", "answer"), [("Migrator", {"applied": []}), ("IndexBuilder", {"built": []})]
)
def test_the_owners_functions_read_their_secrets(
    stack: RunningStack, function: str, answer: dict[str, Any]
) -> None:
    found = Cloud(asdict(stack)).functions.invoke(FunctionName=function, Payload=b"{}")
    assert ("FunctionError" in found, json.loads(found["Payload"].read())) == (False, answer)


def test_a_long_document_shows_its_progress_and_pays_for_no_vector_twice(
    rough_stack: RunningStack, rough_client: Client, rough_pages: Pages, embeddings: Callable[..., None]
) -> None:
    turns = [
        f"On day {day} the wheel of the mill turned {day * turn} times."
        for day in range(700)
        for turn in range(12)
    ]
    rough_pages.texts["/log"] = "\n\n".join(" ".join(turns[at : at + 12]) for at in range(0, len(turns), 12))
    before = rough_stack.stand_in_state("embeddings")["inputs"]
    embeddings("ok", delay=1.0)
    job_id = rough_client.submit(f"{rough_pages.url}/log", CORPUS).job_id
    seen = eventually(lambda: begun(rough_client.get(job_id)), "its first part is embedded")
    embeddings("503", retry_after=1)
    assert seen.progress.chunks_total == seen.chunk_count
    assert seen.progress.chunks_done is not None
    assert seen.chunk_count is not None
    assert 256 <= seen.progress.chunks_done < seen.chunk_count
    cloud, bucket = Cloud(asdict(rough_stack)), rough_stack.resources["ContentBucket"]

    def kept() -> bool:
        return cloud.s3.list_objects_v2(Bucket=bucket, Prefix="progress/")["KeyCount"] > 0

    eventually(kept, "what is embedded is kept")
    embeddings("ok")
    job = eventually(lambda: swept(rough_stack, rough_client, job_id), "it is finished", 60)
    assert (job.status, job.attempt) == ("done", 1)
    assert rough_stack.stand_in_state("embeddings")["inputs"] - before == job.chunk_count


def begun(job: Job) -> Job | None:
    return job if job.progress.chunks_done else None


def swept(stack: RunningStack, client: Client, job_id: str) -> Job | None:
    """Return the job when it has ended; a breaker may have opened, and the next sweep closes it."""
    try:
        return client.wait([job_id], 5)[0]
    except WaitTimeout:
        stack.disturb("OrchestratorSweeperEveryMinute", fire=True)
        return None


def not_embedded(client: Client, url: str, embeddings: Callable[..., None]) -> str:
    """Return a job that failed at embedding."""
    embeddings("wrong_dim")
    job = index(client, url, CORPUS)
    assert (job.status, job.failed_stage) == ("failed", "embedding")
    embeddings("ok")
    return job.job_id


def not_chunked(stack: RunningStack, client: Client) -> str:
    """Return a job that failed at chunking, as its text is empty."""
    job_id = client.submit(slow(stack), CORPUS).job_id
    report = {"stage": "scraping", "status": "success", "result": {"text": " "}}
    with stack.http(stack.ops_key) as ops:
        ops.post(f"/orchestrator/jobs/{job_id}/complete", json=report).raise_for_status()
    (job,) = client.wait([job_id], 30)
    assert (job.status, job.failed_stage) == ("failed", "chunking")
    return job_id


def test_a_job_that_failed_at_embedding_is_retried_from_there(
    rough_stack: RunningStack, rough_client: Client, embeddings: Callable[..., None]
) -> None:
    job_id = not_embedded(rough_client, rough_stack.site + PAGE, embeddings)
    asked = requests_of(rough_stack, PAGE)
    rough_client.retry(job_id)
    (job,) = rough_client.wait([job_id], 30)
    assert (job.status, job.attempt, requests_of(rough_stack, PAGE)) == ("done", 2, asked)


@pytest.mark.parametrize("stage", ["scraping", "chunking", "embedding"])
def test_a_dead_letter_ends_its_job_and_admits_the_next(
    rough_stack: RunningStack, poor: Client, embeddings: Callable[..., None], stage: str
) -> None:
    cloud, waiting = Cloud(asdict(rough_stack)), ""
    if stage == "chunking":
        waiting = not_chunked(rough_stack, poor)
    elif stage == "embedding":
        waiting = not_embedded(poor, f"{rough_stack.site}/workshops/bindery.html", embeddings)
    dying, other = (poor.submit(slow(rough_stack), CORPUS).job_id for _ in range(2))
    if waiting:
        poor.retry(waiting)
    else:
        waiting = poor.submit(rough_stack.site + PAGE, CORPUS).job_id
    assert poor.get(waiting).status == "pending"
    with cloud.database() as database:
        [(task,)] = database.execute("SELECT payload FROM outbox WHERE job_id = %s", (dying,)).fetchall()
    cloud.sqs.send_message(QueueUrl=rough_stack.resources["ScrapeDlq"], MessageBody=task)
    dead, job = poor.wait([dying, waiting], 30)
    assert dead.error is not None
    assert (dead.status, dead.error.code) == ("failed", "poison_message")
    # What is empty stays empty.
    ended = ("failed", "chunking") if stage == "chunking" else ("done", None)
    assert ((job.status, job.failed_stage), job.attempt) == (ended, 1 if stage == "scraping" else 2)
    assert poor.get(other).status == "scraping"
    poor.cancel(other, "not needed any more")

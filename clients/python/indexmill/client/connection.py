"""Connection of one caller to one Indexmill."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from indexmill.client.corpora import Corpora
from indexmill.client.crawls import Crawls
from indexmill.client.documents import Documents
from indexmill.client.errors import WaitTimeout
from indexmill.client.files import content_of
from indexmill.client.stream import StreamReader
from indexmill.client.transport import FIRST_POLL_S, LONGEST_POLL_S
from indexmill.contracts.content import UploadGrant
from indexmill.contracts.job import Job, JobList, SubmitResponse

if TYPE_CHECKING:
    from indexmill.contracts.cost import Budget, Receipt
    from indexmill.contracts.http_actions import CallerLimits, JobDiff, JobHistory, RetryReport
    from indexmill.contracts.http_chunking import ChunkResponse
    from indexmill.contracts.http_embedding import EmbedResponse
    from indexmill.contracts.http_scraper import ScrapeResult
    from indexmill.contracts.http_search import SearchFilter, SearchResponse
    from indexmill.contracts.job import JobCounts

Jobs = list[Job]

_ONE_BY_ONE: Final = 5
"""Up to this many jobs are read one by one; more are read from the list."""
_PAGE: Final = 200
_ENDED: Final = 204
"""Status of a stream without further events."""
_RECEIPT: Final = {"receipt": "true"}


class Client(Crawls, Corpora, Documents):
    """Connection of one caller to one Indexmill.

    Args:
        base_url: Of the API, with the stage when it has one.
        api_key: Sent as `X-API-Key`, to `base_url` only.
        timeout: Of one request, seconds.
        patience_s: How long a request that was refused with 429 is repeated, as its Retry-After says. One
            that asks for a longer wait, for example a quota's until midnight, raises at once.
        sleep: Called between two requests.
    """

    def submit(
        self,
        url: str | Sequence[str],
        corpus_name: str | None = None,
        *,
        idempotency_key: str | None = None,
        budget: Budget | None = None,
        metadata: Mapping[str, str] | None = None,
        **options: bool | int | Sequence[str] | None,
    ) -> SubmitResponse:
        """Submit one URL, or up to 100 at once. Raises ApiError.

        The same submit under the same `idempotency_key` within a day answers as it did the first time.
        Each job may use `budget` at most; `metadata` replaces what the documents have. Options: priority
        (0 to 100), depends_on (job ids), force,
        accept (login_required, soft_404: pages that look like that are read).
        """
        body = {"url": url} if isinstance(url, str) else {"urls": list(url)}
        more = {"budget": budget, "metadata": metadata, **options}
        return self._submit(body, corpus_name, idempotency_key, more)

    def submit_text(
        self,
        name: str,
        text: str,
        corpus_name: str | None = None,
        *,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        **options: bool | int | Sequence[str] | Budget | Mapping[str, str] | None,
    ) -> SubmitResponse:
        """Submit the text of a document without a URL, at most 180 KiB. Raises ApiError.

        The same `name` in the same corpus is the same document: newer text replaces it. Without a
        `content_type` it is "text/plain", or Markdown for a name that ends so. Options as of `submit`.
        """
        content = {"name": name, "text": text, "content_type": content_type}
        return self._submit({"content": content}, corpus_name, idempotency_key, options)

    def submit_file(
        self,
        path: Path,
        corpus_name: str | None = None,
        *,
        name: str | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        **options: bool | int | Sequence[str] | Budget | Mapping[str, str] | None,
    ) -> SubmitResponse:
        """Submit a file of at most 50 MiB as the document `name`, without one that of the file.

        Without a `content_type` it is guessed from the path. Options as of `submit`. Raises ApiError and
        OSError.
        """
        grant = partial(self._post, "/orchestrator/uploads", UploadGrant)
        body = {"content": content_of(path, name, content_type, grant)}
        return self._submit(body, corpus_name, idempotency_key, options)

    def get(self, job_id: str, *, receipt: bool = False) -> Job:
        """Return one job, with its `receipt` if wanted.

        Raises ApiError(not_found) for an unknown one and for another caller's.
        """
        return Job.model_validate(
            self._request("GET", f"/orchestrator/jobs/{job_id}", params=_RECEIPT if receipt else None)
        )

    def receipt(self, **filters: str | None) -> Receipt:
        """Return what all jobs that match used and cost; filters as of `list`. Raises ApiError."""
        from indexmill.contracts.cost import Receipt

        wanted = {name: value for name, value in filters.items() if value is not None}
        page = self._request("GET", "/orchestrator/jobs", params={**wanted, **_RECEIPT, "limit": "1"})
        return Receipt.model_validate(page["receipt"])

    def counts(self) -> JobCounts:
        """Return how many jobs the caller has, by status and failed stage."""
        from indexmill.contracts.job import JobCounts

        return JobCounts.model_validate(self._request("GET", "/orchestrator/jobs/summary"))

    def limits(self) -> CallerLimits:
        """Return the caller's limits of requests and jobs, and their use."""
        from indexmill.contracts.http_actions import CallerLimits

        return CallerLimits.model_validate(self._request("GET", "/orchestrator/limits"))

    def history(self, job_id: str) -> JobHistory:
        """Return a job's transitions and whether their hash chain is intact. Raises ApiError."""
        from indexmill.contracts.http_actions import JobHistory

        return JobHistory.model_validate(self._request("GET", f"/orchestrator/jobs/{job_id}/history"))

    def list(self, **filters: str | int | None) -> JobList:
        """Return one page of the caller's jobs, newest first. Raises ApiError.

        Filters: corpus_name, status, failed_stage, url, code, batch_id, created_after, created_before, limit,
        cursor.
        """
        wanted = {name: str(value) for name, value in filters.items() if value is not None}
        return JobList.model_validate(self._request("GET", "/orchestrator/jobs", params=wanted))

    def wait(
        self,
        job_ids: Iterable[str],
        timeout_s: float,
        on_change: Callable[[Job], None] | None = None,
    ) -> Jobs:
        """Wait until all jobs are done or failed and return them in the order of `job_ids`.

        `on_change` gets each job when its status is first read and each time it changed. Requests that an
        outage fails are repeated. Raises WaitTimeout after `timeout_s`, ApiError for an unreadable job.
        """
        order = list(dict.fromkeys(job_ids))
        jobs: dict[str, Job] = {}
        deadline = self._clock.monotonic() + timeout_s
        pause = FIRST_POLL_S
        while open_ := [each for each in order if each not in jobs or not jobs[each].status.terminal]:
            if jobs and self._clock.monotonic() >= deadline:
                raise WaitTimeout([jobs[each] for each in order if each in jobs], timeout_s)
            if jobs:
                self._sleep(min(pause, max(0.0, deadline - self._clock.monotonic())))
            changed = self._look(open_, jobs, deadline, on_change)
            pause = FIRST_POLL_S if changed else min(pause * 1.5, LONGEST_POLL_S)
        return [jobs[each] for each in order]

    def stream(self, job_id: str, timeout_s: float) -> Iterator[Job]:
        """Yield the job now and after each of its events, until it is done or failed.

        Events that occurred between two connections are included; requests that an outage fails are
        repeated. Raises WaitTimeout after `timeout_s`, ApiError for a job that cannot be read.
        """
        deadline = self._clock.monotonic() + timeout_s
        reader = StreamReader()
        last: Jobs = []
        while True:
            headers = {"Last-Event-ID": reader.last_id} if reader.last_id else {}
            path = f"/orchestrator/jobs/{job_id}/stream"
            answer = self._patiently(partial(self._send, "GET", path, headers=headers), deadline)
            for data in reader.read(answer.text):
                last = [Job.model_validate_json(data)]
                yield last[0]
            if (last and last[0].status.terminal) or answer.status_code == _ENDED:
                return
            if self._clock.monotonic() >= deadline:
                raise WaitTimeout(last, timeout_s)
            self._sleep(min(reader.retry_s, max(0.0, deadline - self._clock.monotonic())))

    def cancel(self, job_id: str, reason: str) -> Job:
        """Stop a job; `invalid_transition` (409) when it ended or is published. Raises ApiError."""
        return self._post(f"/orchestrator/jobs/{job_id}/cancel", Job, {"reason": reason})

    def retry(self, job_id: str) -> Job:
        """Give a failed job another attempt, from the stage that failed. Raises ApiError."""
        return Job.model_validate(self._request("POST", f"/orchestrator/jobs/{job_id}/retry"))

    def retry_all(self, **filters: str | int | bool | None) -> RetryReport:
        """Retry the newest failed jobs that match. Raises ApiError.

        Filters: corpus_name, failed_stage, code, batch_id, limit (1 to 100), include_permanent.
        """
        from indexmill.contracts.http_actions import RetryReport

        return self._post("/orchestrator/jobs/retry", RetryReport, filters)

    def replay(self, job_id: str, *, stored: bool = False) -> Job:
        """Submit a job again: from the site, or from `stored` raw content, as given content always is."""
        body = {"source": "stored" if stored else None}
        return self._post(f"/orchestrator/jobs/{job_id}/replay", Job, body)

    def diff(self, job_id: str) -> JobDiff:
        """Compare a replay with the job that it repeats. Raises ApiError."""
        from indexmill.contracts.http_actions import JobDiff

        return JobDiff.model_validate(self._request("GET", f"/orchestrator/jobs/{job_id}/diff"))

    def search(  # noqa: PLR0913 - what a search can ask
        self,
        query: str | None = None,
        corpus_name: str | None = None,
        top_k: int | None = None,
        *,
        corpora: Sequence[str] | None = None,
        query_embedding: Sequence[float] | None = None,
        mode: Literal["hybrid", "vector", "keyword"] | None = None,
        offset: int | None = None,
        min_similarity: float | None = None,
        min_bm25: float | None = None,
        one_per_document: bool | None = None,
        rerank: bool | None = None,
        explain: bool | None = None,
        filter: SearchFilter | Mapping[str, object] | None = None,
        highlights: bool | None = None,
        neighbours: int | None = None,
        allow_degraded: bool | None = None,
    ) -> SearchResponse:
        """Return the best matching chunks of a corpus, or of up to ten `corpora` together.

        `offset` skips results; the next page begins where this one ended. `filter` has conditions on the
        documents, as `{"language": "en", "metadata": {"team": "quay"}}`. `degraded` says what a worse answer
        lacks, `other_model` that documents have to be indexed again, since the model was changed. With
        `allow_degraded=False` a worse answer is an ApiError (embedding_unavailable) instead. Raises ApiError.
        """
        from indexmill.contracts.http_search import SearchResponse

        body = {
            **{"query": query, "query_embedding": query_embedding, "mode": mode},
            **{"corpus_name": corpus_name, "corpora": corpora, "top_k": top_k, "offset": offset},
            **{"min_similarity": min_similarity, "min_bm25": min_bm25, "one_per_document": one_per_document},
            **{"rerank": rerank, "explain": explain, "allow_degraded": allow_degraded},
            **{"filter": filter, "highlights": highlights, "neighbours": neighbours},
        }
        return self._post("/embedding/search", SearchResponse, body)

    def scrape(self, url: str, **options: bool | Sequence[str]) -> ScrapeResult:
        """Fetch one URL now. Raises ApiError.

        Options: formats ("markdown", "html"), only_main_content, accept.
        """
        from indexmill.contracts.http_scraper import ScrapeResult

        return self._post("/scraper/scrape", ScrapeResult, {"url": url, **options})

    def chunk(
        self, text: str, title: str | None = None, settings: Mapping[str, int] | None = None
    ) -> ChunkResponse:
        """Split a text into chunks. Raises ApiError."""
        from indexmill.contracts.http_chunking import ChunkResponse

        body = {"text": text, "title": title, "settings": settings}
        return self._post("/chunking/chunk", ChunkResponse, body)

    def embed(
        self, texts: Sequence[str], url: str | None = None, corpus_name: str | None = None
    ) -> EmbedResponse:
        """Return a vector per text; with `url` they become the chunks of that document. Raises ApiError."""
        from indexmill.contracts.http_embedding import EmbedResponse

        body = {"texts": list(texts), "url": url, "corpus_name": corpus_name}
        return self._post("/embedding/embed", EmbedResponse, body)

    def _look(
        self,
        open_: Sequence[str],
        jobs: dict[str, Job],
        deadline: float,
        on_change: Callable[[Job], None] | None,
    ) -> bool:
        """Read the open jobs into `jobs` and return whether any status changed."""
        changed = False
        for job in self._patiently(lambda: self._read(open_), deadline):
            before = jobs.get(job.job_id)
            jobs[job.job_id] = job
            if before is None or before.status != job.status:
                changed = True
                if on_change is not None:
                    on_change(job)
        return changed

    def _read(self, job_ids: Sequence[str]) -> Jobs:
        if len(job_ids) <= _ONE_BY_ONE:
            return [self.get(job_id) for job_id in job_ids]
        missing = set(job_ids)
        found: Jobs = []
        cursor: str | None = None
        for _ in range(2 + len(job_ids) // _PAGE):
            page = self.list(limit=_PAGE, cursor=cursor)
            mine = [job for job in page.jobs if job.job_id in missing]
            found += mine
            missing -= {job.job_id for job in mine}
            cursor = page.next_cursor
            if not missing or cursor is None:
                break
        # Newer jobs of the same caller may have pushed some off the first pages.
        return found + [self.get(job_id) for job_id in sorted(missing)]

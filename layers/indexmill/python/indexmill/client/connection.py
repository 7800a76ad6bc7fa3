"""Connection of one caller to one Indexmill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import httpx
from pydantic import BaseModel

from indexmill.client.errors import ApiError, WaitTimeout, api_error
from indexmill.client.files import content_of
from indexmill.client.stream import StreamReader
from indexmill.contracts.given import UploadGrant
from indexmill.contracts.http_jobs import JobList, SubmitResponse
from indexmill.contracts.job import Job
from indexmill.platform.time.clock import Clock, SystemClock

if TYPE_CHECKING:
    from indexmill.contracts.budget import Budget
    from indexmill.contracts.http_actions import BatchSummary, JobDiff, RetryReport
    from indexmill.contracts.http_chunking import ChunkResponse
    from indexmill.contracts.http_embedding import EmbedResponse
    from indexmill.contracts.http_history import JobHistory
    from indexmill.contracts.http_jobs import JobCounts
    from indexmill.contracts.http_limits import CallerLimits
    from indexmill.contracts.http_scraper import ScrapeResult
    from indexmill.contracts.http_search import SearchResponse
    from indexmill.contracts.receipt import Receipt

_Answer = TypeVar("_Answer")
_Model = TypeVar("_Model", bound=BaseModel)
Jobs = list[Job]

_FIRST_POLL_S: Final = 0.1
_LONGEST_POLL_S: Final = 2.0
_ONE_BY_ONE: Final = 5
"""Up to this many jobs are read one by one; more are read from the list."""
_PAGE: Final = 200
_ENDED: Final = 204
"""Status of a stream without further events."""
_RECEIPT: Final = {"receipt": "true"}
_REFUSED: Final = 429
_TRANSIENT: Final = frozenset({429, 502, 503, 504})
"""Statuses after which a request is repeated."""


class Client:
    """Connection of one caller to one Indexmill.

    Args:
        base_url: Of the API, with the stage when it has one.
        api_key: Sent as `X-API-Key`, to `base_url` only.
        timeout: Of one request, seconds.
        patience_s: How long a request that was refused with 429 is repeated, as its Retry-After says. One
            that asks for a longer wait, for example a quota's until midnight, raises at once.
        sleep: Called between two requests.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        timeout: float = 35.0,
        *,
        patience_s: float = 30.0,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,  # noqa: TID251 - waits on the caller's own machine
    ) -> None:
        self._http = httpx.Client(
            base_url=base_url, headers={"X-API-Key": api_key}, timeout=timeout, follow_redirects=False
        )
        self._patience_s = patience_s
        self._clock = clock or SystemClock()
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(
        self,
        url: str | Sequence[str],
        corpus_name: str | None = None,
        *,
        idempotency_key: str | None = None,
        budget: Budget | None = None,
        **options: bool | int | Sequence[str] | None,
    ) -> SubmitResponse:
        """Submit one URL, or up to 100 at once. Raises ApiError.

        The same submit under the same `idempotency_key` within a day answers as it did the first time.
        Each job may use `budget` at most. Options: priority (0 to 100), depends_on (job ids), force.
        """
        body = {"url": url} if isinstance(url, str) else {"urls": list(url)}
        return self._submit(body, corpus_name, idempotency_key, {"budget": budget, **options})

    def submit_text(
        self,
        name: str,
        text: str,
        corpus_name: str | None = None,
        *,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        **options: bool | int | Sequence[str] | Budget | None,
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
        **options: bool | int | Sequence[str] | Budget | None,
    ) -> SubmitResponse:
        """Submit a file of at most 50 MiB as the document `name`, without one that of the file.

        Without a `content_type` it is guessed from the path. Options as of `submit`. Raises ApiError and
        OSError.
        """
        grant = partial(self._post, "/orchestrator/uploads", UploadGrant)
        body = {"content": content_of(path, name, content_type, grant)}
        return self._submit(body, corpus_name, idempotency_key, options)

    def _submit(
        self,
        body: Mapping[str, object],
        corpus_name: str | None,
        idempotency_key: str | None,
        options: Mapping[str, object],
    ) -> SubmitResponse:
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        if isinstance(budget := options.get("budget"), BaseModel):
            options = {**options, "budget": budget.model_dump(exclude_none=True)}
        whole = {**body, "corpus_name": corpus_name, **options}
        return self._post("/orchestrator/jobs", SubmitResponse, whole, headers=headers)

    def get(self, job_id: str, *, receipt: bool = False) -> Job:
        """Return one job, with its `receipt` if wanted.

        Raises ApiError(not_found) for an unknown one and for another caller's.
        """
        return Job.model_validate(
            self._request("GET", f"/orchestrator/jobs/{job_id}", params=_RECEIPT if receipt else None)
        )

    def receipt(self, **filters: str | None) -> Receipt:
        """Return what all jobs that match used and cost; filters as of `list`. Raises ApiError."""
        from indexmill.contracts.receipt import Receipt

        wanted = {name: value for name, value in filters.items() if value is not None}
        page = self._request("GET", "/orchestrator/jobs", params={**wanted, **_RECEIPT, "limit": "1"})
        return Receipt.model_validate(page["receipt"])

    def counts(self) -> JobCounts:
        """Return how many jobs the caller has, by status and failed stage."""
        from indexmill.contracts.http_jobs import JobCounts

        return JobCounts.model_validate(self._request("GET", "/orchestrator/jobs/summary"))

    def limits(self) -> CallerLimits:
        """Return the caller's limits of requests and jobs, and their use."""
        from indexmill.contracts.http_limits import CallerLimits

        return CallerLimits.model_validate(self._request("GET", "/orchestrator/limits"))

    def history(self, job_id: str) -> JobHistory:
        """Return a job's transitions and whether their hash chain is intact. Raises ApiError."""
        from indexmill.contracts.http_history import JobHistory

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
        pause = _FIRST_POLL_S
        while open_ := [each for each in order if each not in jobs or not jobs[each].status.terminal]:
            if jobs and self._clock.monotonic() >= deadline:
                raise WaitTimeout([jobs[each] for each in order if each in jobs], timeout_s)
            if jobs:
                self._sleep(min(pause, max(0.0, deadline - self._clock.monotonic())))
            changed = self._look(open_, jobs, deadline, on_change)
            pause = _FIRST_POLL_S if changed else min(pause * 1.5, _LONGEST_POLL_S)
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

    def batch(self, batch_id: str, *, receipt: bool = False) -> BatchSummary:
        """Return the counts of the jobs that were submitted together, with their `receipt` if wanted.

        Raises ApiError.
        """
        from indexmill.contracts.http_actions import BatchSummary

        path = f"/orchestrator/batches/{batch_id}"
        return BatchSummary.model_validate(self._request("GET", path, params=_RECEIPT if receipt else None))

    def search(self, query: str, corpus_name: str | None = None, top_k: int | None = None) -> SearchResponse:
        """Return the best matching chunks of one corpus. Raises ApiError."""
        from indexmill.contracts.http_search import SearchResponse

        body = {"query": query, "corpus_name": corpus_name, "top_k": top_k}
        return self._post("/embedding/search", SearchResponse, body)

    def scrape(self, url: str, **options: bool | Sequence[str]) -> ScrapeResult:
        """Fetch one URL now. Options: formats ("markdown", "html"), only_main_content. Raises ApiError."""
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

    def _patiently(self, read: Callable[[], _Answer], deadline: float) -> _Answer:
        """Return `read()`, repeated while an outage lasts and before the deadline, as Retry-After says."""
        pause = _FIRST_POLL_S
        while True:
            try:
                return read()
            except ApiError as error:
                left = deadline - self._clock.monotonic()
                transient = error.status in _TRANSIENT or error.status == 0
                if not transient or left <= 0:
                    raise
                self._sleep(min(max(error.retry_after or 0.0, pause), left))
                pause = min(pause * 2, _LONGEST_POLL_S)

    def _post(self, path: str, model: type[_Model], body: Mapping[str, Any], **more: Any) -> _Model:
        """Send the fields that are not None and return the answer as `model`."""
        sent = {name: value for name, value in body.items() if value is not None}
        return model.model_validate(self._request("POST", path, json=sent, **more))

    def _request(self, method: str, path: str, **more: Any) -> Any:
        return self._send(method, path, **more).json()

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        until = self._clock.monotonic() + self._patience_s
        while True:
            try:
                return self._send_once(method, path, **more)
            except ApiError as error:
                # Refused before any work was done, so that a repeated POST does nothing twice.
                wait_s = error.retry_after if error.status == _REFUSED else None
                if wait_s is None or self._clock.monotonic() + wait_s > until:
                    raise
                self._sleep(wait_s)

    def _send_once(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **more)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise ApiError(
                "connection_error", f"{self._http.base_url} did not answer: {reason}", 0
            ) from error
        if response.is_success:
            return response
        raise api_error(response.status_code, response.reason_phrase, response.text)

"""Crawls, sitemaps and other batches of one caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from indexmill.client.errors import BatchTimeout
from indexmill.client.transport import FIRST_POLL_S, LONGEST_POLL_S, Transport

if TYPE_CHECKING:
    from indexmill.contracts.crawl import CrawlRules
    from indexmill.contracts.http_actions import BatchSummary, DryRun
    from indexmill.contracts.job import SubmitResponse

_RECEIPT: Final = {"receipt": "true"}


class Crawls(Transport):
    """Requests about batches; a crawl is a batch that grows."""

    def crawl(
        self,
        url: str,
        corpus_name: str | None = None,
        rules: CrawlRules | None = None,
        *,
        idempotency_key: str | None = None,
        **options: bool | int | Sequence[str] | Mapping[str, str] | None,
    ) -> SubmitResponse:
        """Index the page at `url` and those that it leads to, within `rules`. Raises ApiError.

        `batch_id` of the answer is the crawl's. Options as of `submit`.
        """
        return self._start("crawl", url, corpus_name, rules, idempotency_key, options)

    def sitemap(
        self,
        url: str,
        corpus_name: str | None = None,
        rules: CrawlRules | None = None,
        *,
        idempotency_key: str | None = None,
        **options: bool | int | Sequence[str] | Mapping[str, str] | None,
    ) -> SubmitResponse:
        """Index the pages that the sitemap at `url` lists, within `rules`; otherwise as `crawl`."""
        return self._start("sitemap", url, corpus_name, rules, idempotency_key, options)

    def _start(
        self,
        kind: str,
        url: str,
        corpus_name: str | None,
        rules: CrawlRules | None,
        idempotency_key: str | None,
        options: Mapping[str, object],
    ) -> SubmitResponse:
        body = {"url": url, "kind": kind, "crawl": rules.model_dump() if rules is not None else None}
        return self._submit(body, corpus_name, idempotency_key, options)

    def dry_run(self, url: str | Sequence[str], corpus_name: str | None = None, **options: Any) -> DryRun:
        """Fetch up to five URLs and return what their jobs would find and cost; no job is made.

        Options as of `submit`, and kind (crawl, sitemap). Raises ApiError.
        """
        from indexmill.contracts.http_actions import DryRun

        body = {"url": url} if isinstance(url, str) else {"urls": list(url)}
        whole = {**body, "corpus_name": corpus_name, **options, "dry_run": True}
        return self._post("/orchestrator/jobs", DryRun, whole)

    def batch(self, batch_id: str, *, receipt: bool = False) -> BatchSummary:
        """Return the counts of the jobs that were submitted together, with their `receipt` if wanted.

        Raises ApiError.
        """
        from indexmill.contracts.http_actions import BatchSummary

        path = f"/orchestrator/batches/{batch_id}"
        return BatchSummary.model_validate(self._request("GET", path, params=_RECEIPT if receipt else None))

    def cancel_batch(self, batch_id: str, reason: str) -> BatchSummary:
        """Stop the jobs of a batch that have not ended; a crawl gets no more. Raises ApiError."""
        from indexmill.contracts.http_actions import BatchSummary

        return self._post(f"/orchestrator/batches/{batch_id}/cancel", BatchSummary, {"reason": reason})

    def wait_batch(
        self, batch_id: str, timeout_s: float, on_change: Callable[[BatchSummary], None] | None = None
    ) -> BatchSummary:
        """Wait until all jobs of a batch are done or failed, those that a crawl adds too.

        `on_change` gets the counts each time they changed. Requests that an outage fails are repeated. Raises
        BatchTimeout after `timeout_s`, ApiError.
        """
        deadline, pause = self._clock.monotonic() + timeout_s, FIRST_POLL_S
        last: BatchSummary | None = None
        while True:
            summary = self._patiently(partial(self.batch, batch_id), deadline)
            changed = summary != last
            if changed and on_change is not None:
                on_change(summary)
            if summary.finished:
                return summary
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise BatchTimeout(summary, timeout_s)
            last, pause = summary, FIRST_POLL_S if changed else min(pause * 1.5, LONGEST_POLL_S)
            self._sleep(min(pause, left))

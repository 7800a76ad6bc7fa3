"""What the client does with jobs that it submitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from indexmill.contracts.job import Job

if TYPE_CHECKING:
    from indexmill.contracts.http_verbs import BatchSummary, JobDiff, RetryReport

_Model = TypeVar("_Model", bound=BaseModel)


class JobVerbs:
    """The part of the client for jobs that are there already. All raise ApiError."""

    def cancel(self, job_id: str, reason: str) -> Job:
        """Stop a job; `invalid_transition` (409) when it ended or is published already."""
        return self._post(f"/orchestrator/jobs/{job_id}/cancel", Job, {"reason": reason})

    def retry(self, job_id: str) -> Job:
        """Give a failed job another attempt, from the stage that failed."""
        return Job.model_validate(self._request("POST", f"/orchestrator/jobs/{job_id}/retry"))

    def retry_all(self, **filters: str | int | bool | None) -> RetryReport:
        """Retry the newest failed jobs that match.

        Filters: corpus_name, failed_stage, code, batch_id, limit (1 to 100), include_permanent.
        """
        from indexmill.contracts.http_verbs import RetryReport

        return self._post("/orchestrator/jobs/retry", RetryReport, filters)

    def replay(self, job_id: str, *, stored: bool = False) -> Job:
        """Do a job again as a new one, from the site or from the raw content that was `stored`."""
        body = {"source": "stored" if stored else "fetch"}
        return self._post(f"/orchestrator/jobs/{job_id}/replay", Job, body)

    def diff(self, job_id: str) -> JobDiff:
        """Compare a replay with the job that it repeats."""
        from indexmill.contracts.http_verbs import JobDiff

        return JobDiff.model_validate(self._request("GET", f"/orchestrator/jobs/{job_id}/diff"))

    def batch(self, batch_id: str) -> BatchSummary:
        """How the jobs stand that were submitted together."""
        from indexmill.contracts.http_verbs import BatchSummary

        return BatchSummary.model_validate(self._request("GET", f"/orchestrator/batches/{batch_id}"))

    def _post(self, path: str, model: type[_Model], body: Mapping[str, Any], **more: Any) -> _Model:
        """Send what is not None, and read the answer as `model`."""
        sent = {name: value for name, value in body.items() if value is not None}
        return model.model_validate(self._request("POST", path, json=sent, **more))

    def _request(self, method: str, path: str, **more: Any) -> Any:
        raise NotImplementedError

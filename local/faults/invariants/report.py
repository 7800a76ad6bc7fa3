"""All invariants over one idle stack."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

import httpx
import psycopg

from local.backends.postgres_logins import PASSWORD
from local.faults.cloud import Cloud
from local.faults.invariants import dead_letters, index, jobs, secrets, stores
from local.faults.invariants.violation import Accepted, Database, Violation

_POLL_S: Final = 0.25
_SWEEP_EVERY_S: Final = 1.0
_HITS: Final = 100
"""Among near duplicates the unique sentence decides keyword ranking, and its paragraph vector ranking."""
_AUTHORIZATION: Final = ("Bearer ", "AWS4-HMAC-SHA256 ")
"""Prefix of the values of authorisation headers."""
URL_QUERY: Final = "signature=of-somebody-"
"""Beginning of the queries of URLs that are submitted; columns, messages and content alone may have it."""
_DIGITS: Final = 7
"""Digits of a vector's numbers to search for, with sign and point: fewer than any encoding writes."""
_OPEN: Final = """
SELECT (SELECT count(*) FROM jobs WHERE status NOT IN ('done', 'failed')),
       (SELECT count(*) FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL)
"""


@dataclass(frozen=True, slots=True)
class IdleCheck:
    """Outcome of `wait_until_idle`: whether the stack became idle, and the remaining work."""

    reached: bool
    open_jobs: int
    unsent: int
    depths: dict[str, int] = field(default_factory=dict)
    waited_s: float = 0.0


def wait_until_idle(
    cloud: Cloud,
    within_s: float,
    *,
    sweep: bool = True,
    lease_s: float = 0.0,
    on_check: Callable[[IdleCheck], None] | None = None,
) -> IdleCheck:
    """Wait until every job is terminal and every queue is empty.

    `sweep` runs the sweeper each second instead of each minute, and ages claims and sent messages,
    except claims that are younger than `lease_s` seconds.
    """
    began = swept = time.monotonic()
    while True:
        open_jobs, unsent = _open(cloud)
        waited = time.monotonic() - began
        # With a job in flight the stack is not idle: the requests for all queues are saved.
        counted = not open_jobs or on_check is not None or waited > within_s
        depths = cloud.depths() if counted else {}
        idle = IdleCheck(not open_jobs and not any(depths.values()), open_jobs, unsent, depths, waited)
        if on_check is not None:
            on_check(idle)
        if idle.reached or waited > within_s:
            return idle
        if sweep and time.monotonic() - swept > _SWEEP_EVERY_S:
            cloud.pass_time(lease_s)
            cloud.sweep()
            swept = time.monotonic()
        time.sleep(_POLL_S)


def _open(cloud: Cloud) -> tuple[int, int]:
    """Return the number of jobs in flight and of unsent messages; one of each while unknown."""
    try:
        with cloud.database() as database:
            row = database.execute(_OPEN).fetchone()
    except psycopg.OperationalError:
        return 1, 1
    return (int(row[0]), int(row[1])) if row else (0, 0)


def violations(cloud: Cloud, accepted: Sequence[Accepted]) -> list[Violation]:
    """Yield the violations of an idle stack. `accepted` are the jobs that were answered with 202."""
    depths = cloud.depths()
    with cloud.database() as database:
        return [
            *jobs.no_job_lost(database, accepted),
            *jobs.no_message_missing(database, depths),
            *jobs.all_jobs_terminal(database, accepted),
            *jobs.histories_are_valid(database),
            *index.done_is_complete(database, lambda key: _object(cloud, key)),
            *index.no_duplicates(database),
            *dead_letters.no_poison_left(database, depths),
            *index.done_is_searchable(database, accepted, lambda text, corpus: _found(cloud, text, corpus)),
            *secrets.leaks(
                database,
                _canaries(cloud, database, accepted),
                Path(cloud.info["state"]) / "logs",
                chain(_metrics(cloud), stores.contents(cloud, depths)),
            ),
        ]


def _object(cloud: Cloud, key: str) -> bytes:
    return cloud.s3.get_object(Bucket=cloud.info["resources"]["ContentBucket"], Key=key)["Body"].read()


def _found(cloud: Cloud, text: str, corpus: str) -> list[str]:
    hits = cloud.client.search(text, corpus, _HITS).results
    return [hit.source_url for hit in hits if text in hit.text]


def _canaries(cloud: Cloud, database: Database, accepted: Sequence[Accepted]) -> list[secrets.Canary]:
    keys = [secrets.Canary(name, cloud.info[name]) for name in ("api_key", "other_api_key", "ops_key")]
    texts = [
        secrets.Canary(f"text of {each.job_id}", each.sentence, secrets.DOCUMENT_STORE)
        for each in list(accepted)[:3]
        if each.sentence
    ]
    return [
        *keys,
        secrets.Canary("the database's password", PASSWORD),
        secrets.Canary("a URL's query", URL_QUERY, secrets.URL_STORE),
        *(secrets.Canary("an Authorization header", each, secrets.DOCUMENT_STORE) for each in _AUTHORIZATION),
        *texts,
        *_tokens(cloud, accepted),
        *_vectors(database),
    ]


def _tokens(cloud: Cloud, accepted: Sequence[Accepted]) -> list[secrets.Canary]:
    """Return a used token for the stream of a job."""
    headers = {"X-API-Key": cloud.info["api_key"]}
    with httpx.Client(base_url=cloud.info["gateway"], timeout=35.0) as caller:
        for job in accepted[:1]:
            path = f"/orchestrator/jobs/{job.job_id}/stream"
            granted = caller.post(f"{path}-token", headers=headers)
            if granted.status_code == 200:
                token = granted.json()["token"]
                caller.get(path, params={"token": token}).raise_for_status()
                return [secrets.Canary("a stream's token", token)]
    return []


def _vectors(database: Database) -> list[secrets.Canary]:
    """Return a pattern of the first numbers of a vector, for any number of digits."""
    row = database.execute("SELECT embedding::text FROM vectors ORDER BY chunk DESC LIMIT 1").fetchone()
    if row is None:
        return []
    numbers = [re.escape(each[:_DIGITS]) for each in row[0].strip("[]").split(",")[:3]]
    return [secrets.Canary("a vector", row[0], pattern=r"[\de+-]*,\s*".join(numbers))]


def _metrics(cloud: Cloud) -> Iterator[tuple[str, str]]:
    yield "metrics", httpx.get(f"{cloud.info['control']}/metrics", timeout=10.0).text

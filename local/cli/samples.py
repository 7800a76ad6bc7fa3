"""Sample events, built by the code that builds the real ones: contracts, front, queues and schedules."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import BaseModel

_AGENT: Final = "indexmill"
_CORPUS: Final = "samples"
_TEXT: Final = "# Opening hours\n\nThe reading room is open from nine to five, and until eight on Thursdays."


@dataclass(frozen=True, slots=True)
class SampleContext:
    """Values of the stack that events mention; the defaults are for no stack."""

    region: str = "eu-west-1"
    account_id: str = "000000000000"
    page: str = "https://example.com/"
    """URL that can be scraped there."""
    api_key: str = "KEY"
    stage: str = "dev"


@dataclass(frozen=True, slots=True)
class Sample:
    """One kind of event: the function that takes it, and its effect."""

    function: str
    about: str
    build: Callable[[SampleContext], Mapping[str, Any]]


def sample(name: str, context: SampleContext) -> Mapping[str, Any]:
    """Return the event of this name; KeyError for an unknown one."""
    return SAMPLES[name].build(context)


def _api(context: SampleContext) -> Mapping[str, Any]:
    from indexmill.contracts.job import SubmitRequest

    builder, exchange, match, headers = _request(context)
    claims = {
        "caller_id": _caller(context),
        "caller_type": "user",
        "tier": "",
        "internal": "false",
    }
    exchange.authorizer = {"principalId": claims["caller_id"], **claims}
    body = SubmitRequest(url=context.page, corpus_name=_CORPUS).model_dump_json(exclude_none=True)
    event: Mapping[str, Any] = builder.proxy_event(exchange, match, headers, body.encode())
    return event


def _authorizer(context: SampleContext) -> Mapping[str, Any]:
    builder, exchange, match, headers = _request(context)
    event: Mapping[str, Any] = builder.authorizer_event(exchange, match, headers)
    return event


def _request(context: SampleContext) -> tuple[Any, Any, Any, Any]:
    """Return a POST /orchestrator/jobs request, as the front reads it."""
    from local.front.events import EventBuilder, Headers
    from local.front.exchange import ApiIdentity, Exchange, new_ids, new_trace_id
    from local.front.routing import Match, resource_id
    from local.template.spec import RouteSpec

    at = int(datetime.now(UTC).timestamp() * 1e3)
    request_id, extended = new_ids()
    path = "/orchestrator/jobs"
    exchange = Exchange(
        api=ApiIdentity(context.account_id, "local", context.region, context.stage),
        request_id=request_id,
        extended_request_id=extended,
        trace_id=new_trace_id(at),
        started=0.0,
        epoch_ms=at,
        method="POST",
        path=path,
        query="",
        protocol="HTTP/1.1",
        host="127.0.0.1",
        source_ip="127.0.0.1",
        user_agent=_AGENT,
        resource_path=path,
        resource_id=resource_id(path),
    )
    headers = Headers()
    for header, value in (("X-API-Key", context.api_key), ("Content-Type", "application/json")):
        headers.add(header, value)
    match = Match(RouteSpec("POST", path, "OrchestratorApi"), resource_id(path), {})
    return EventBuilder("local"), exchange, match, headers


def _scrape(context: SampleContext) -> Mapping[str, Any]:
    from indexmill.contracts.messages import ScrapeTask

    # Without a job id no result is sent: the Orchestrator would not know an invented job.
    return _queued(context, "ScrapeQueue", ScrapeTask(message_id=str(uuid.uuid4()), url=context.page))


def _chunk(context: SampleContext) -> Mapping[str, Any]:
    from indexmill.contracts.messages import ChunkTask

    message_id = str(uuid.uuid4())
    key = f"chunks/{message_id}.json"
    task = ChunkTask(message_id=message_id, text=_TEXT, title="Reading room", result_key=key)
    return _queued(context, "ChunkQueue", task)


def _embed(context: SampleContext) -> Mapping[str, Any]:
    from indexmill.contracts.content import Chunk
    from indexmill.contracts.identity import corpus_key, document_id
    from indexmill.contracts.messages import EmbedTask, Target

    key = corpus_key(_caller(context), _CORPUS)
    target = Target(
        caller_id=_caller(context),
        corpus_name=_CORPUS,
        corpus_key=key,
        document_id=document_id(key, context.page),
        url=context.page,
    )
    body = _TEXT.partition("\n\n")[2]
    chunk = Chunk(ordinal=0, text=body, context="Opening hours", start=17, end=17 + len(body), tokens=20)
    task = EmbedTask(
        message_id=str(uuid.uuid4()),
        target=target,
        generation=1,
        title="Opening hours",
        content_sha256=hashlib.sha256(_TEXT.encode()).hexdigest(),
        chunks=[chunk],
        chunk_count=1,
    )
    return _queued(context, "EmbedQueue", task)


def _callbacks(context: SampleContext) -> Mapping[str, Any]:
    from indexmill.contracts.messages import StageFailure, stage_result

    result = stage_result(
        message_id=f"{uuid.uuid4()}:result",
        job_id=str(uuid.uuid4()),
        stage="scraping",
        status="failed",
        failure=StageFailure(code="http_404", message="There is no such page"),
        elapsed_ms=12,
    )
    return _queued(context, "CallbacksQueue", result)


def _schedule(context: SampleContext) -> Mapping[str, Any]:
    from local.triggers.schedule import scheduled_event

    rule = "OrchestratorSweeperEveryMinute"
    return scheduled_event(rule, context.region, context.account_id, datetime.now(UTC))


def _queued(context: SampleContext, queue: str, message: BaseModel) -> Mapping[str, Any]:
    """Return the message as its event source delivers it."""
    from indexmill.contracts.messages import write
    from local.triggers.sqs_events import record

    body = write(message)
    now = str(int(datetime.now(UTC).timestamp() * 1e3))
    received = {
        "MessageId": str(uuid.uuid4()),
        "ReceiptHandle": "sample",
        "Body": body,
        "MD5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
        "Attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": now,
            "SenderId": context.account_id,
            "ApproximateFirstReceiveTimestamp": now,
        },
    }
    arn = f"arn:aws:sqs:{context.region}:{context.account_id}:indexmill-{queue}"
    return {"Records": [record(received, arn, context.region)]}


def _caller(context: SampleContext) -> str:
    from indexmill.contracts.identity import key_hash

    return key_hash(context.api_key)


SAMPLES: Final[Mapping[str, Sample]] = {
    "api": Sample("OrchestratorApi", "a POST of the gateway: submits a page", _api),
    "authorizer": Sample("Authorizer", "the gateway asks whether a key is valid", _authorizer),
    "sqs-scrape": Sample("ScraperWorker", "a page to scrape, without a job", _scrape),
    "sqs-chunk": Sample("ChunkingWorker", "a text to split, without a job", _chunk),
    "sqs-embed": Sample("EmbeddingWorker", f"a chunk to put into the corpus {_CORPUS}", _embed),
    "sqs-callbacks": Sample("OrchestratorResults", "a stage failed, of an unknown job", _callbacks),
    "schedule": Sample("OrchestratorSweeper", "the sweeper's schedule", _schedule),
}
NAMES: Final = tuple(SAMPLES)

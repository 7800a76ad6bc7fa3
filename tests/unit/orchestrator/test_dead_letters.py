"""Dead letters: stored once, results applied again, stage messages fail their jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from indexmill.contracts.errors import Defect, ErrorCode, TransientError
from indexmill.contracts.messages import write
from indexmill.orchestrator.results.dead_letters import KeepDeadLetters
from indexmill.orchestrator.settings import OrchestratorDeadLettersSettings
from indexmill.orchestrator.store.jobs import DeadLetter, JobsTx, T
from indexmill.orchestrator.wiring import build_dead_letters
from indexmill.platform.observability import Observability
from tests.support.function_env import environment
from tests.support.jobs import embedded, scraped, stored_job
from tests.support.metrics import emitted
from tests.support.orchestrator import OrchestratorHarness
from tests.twins.blobs import InMemoryBlobs
from tests.twins.jobs import InMemoryJobs


class Harness(OrchestratorHarness):
    def __init__(self) -> None:
        super().__init__()
        self.blobs = InMemoryBlobs()
        self.keep = KeepDeadLetters(self.store, self.record, self.relay, self.blobs, self.observability)

    def deliver_dead(self, *bodies: str, receives: int = 1) -> list[str]:
        """Deliver dead bodies, and return the ids of those that stay in their queue."""
        records = [dead(body, str(at), receives) for at, body in enumerate(bodies)]
        answer: dict[str, Any] = self.keep({"Records": records})
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]

    @property
    def letters(self) -> list[DeadLetter]:
        assert isinstance(self.store, InMemoryJobs)
        return self.store.letters


def dead(body: str, message_id: str = "m", receives: int = 1) -> dict[str, Any]:
    attributes = {"ApproximateReceiveCount": str(receives), "SentTimestamp": "1"}
    return {
        "body": body,
        "messageId": message_id,
        "eventSourceARN": "arn:aws:sqs:r:1:Dlq",
        "attributes": attributes,
    }


def error_code(p: Harness, job_id: str) -> str | None:
    job = stored_job(p.store, "0123456789abcdef", job_id)
    return job.error.code if job and job.error else None


@pytest.mark.fault("F19")
def test_a_dead_stage_message_fails_its_job_and_says_what_it_was() -> None:
    p = Harness()
    job_id = p.submit()
    assert p.deliver_dead(p.scrape.bodies[0], receives=100) == []
    assert error_code(p, job_id) == "poison_message"
    (letter,) = p.letters
    assert (letter.cause, letter.stage, letter.attempt, letter.job_id, letter.receive_count) == (
        *("poison_message", "scraping", 1, job_id, 100),
    )
    assert letter.message_id
    assert letter.attributes == {"ApproximateReceiveCount": "100", "SentTimestamp": "1"}


def test_a_dead_message_of_an_ended_stage_changes_nothing() -> None:
    p = Harness()
    job_id = p.submit()
    body = p.scrape.bodies[0]
    p.deliver(scraped(job_id))
    assert p.deliver_dead(body) == []
    assert p.status(job_id) == "embedding"


def test_a_dead_message_of_another_attempt_changes_nothing() -> None:
    p = Harness()
    job_id = p.submit()
    later = {**json.loads(p.scrape.bodies[0]), "attempt": 2}
    assert p.deliver_dead(json.dumps(later)) == []
    assert p.status(job_id) == "scraping"


def test_a_dead_result_is_applied_again() -> None:
    p = Harness()
    job_id = p.submit()
    assert p.deliver_dead(write(scraped(job_id))) == []
    p.chunk_all()
    assert p.status(job_id) == "embedding"
    assert p.letters[0].cause == "dead_callback"


@pytest.mark.fault("F12")
def test_a_dead_result_that_is_ahead_of_its_job_stays_until_it_applies() -> None:
    p = Harness()
    job_id = p.submit()
    ahead = write(embedded(job_id))
    assert p.deliver_dead(ahead) == ["0"]
    p.deliver(scraped(job_id))
    assert p.deliver_dead(ahead) == []
    assert p.status(job_id) == "done"
    assert len(p.letters) == 1


def test_a_dead_result_that_stays_ahead_of_its_job_is_only_recorded() -> None:
    p = Harness()
    job_id = p.submit()
    assert p.deliver_dead(write(embedded(job_id)), receives=20) == []
    assert len(p.letters) == 1


UNREADABLE = '{"schema": "indexmill.scrape.v1", "job_id": 7}'


@pytest.mark.fault("F19")
@pytest.mark.parametrize(
    ("body", "cause"),
    [
        *((body, "foreign") for body in ("", "{", "[]", '"x"', '{"schema": "else.v1"}', "[" * 100_000)),
        (UNREADABLE, "unreadable"),
        ('{"schema": "indexmill.result.v99", "job_id": "a"}', "newer_schema"),
    ],
    ids=lambda value: value[:40],
)
def test_what_cannot_be_read_is_kept_and_fails_no_job(body: str, cause: str) -> None:
    p = Harness()
    job_id = p.submit()
    assert p.deliver_dead(body) == []
    assert p.letters[0].cause == cause
    assert p.status(job_id) == "scraping"


@pytest.mark.fault("F17")
def test_a_broken_message_of_a_job_says_nothing_about_it() -> None:
    p = Harness()
    job_id = p.submit()
    assert p.deliver_dead(json.dumps({"schema": "indexmill.scrape.v1", "job_id": job_id, "attempt": 1})) == []
    assert (p.letters[0].cause, p.status(job_id)) == ("unreadable", "scraping")


def test_a_large_body_is_stored_as_a_blob() -> None:
    p = Harness()
    job_id = p.submit()
    body = write(scraped(job_id, text="long " * 10_000))
    p.deliver_dead(body)
    (letter,) = p.letters
    assert letter.body_ref is not None
    assert p.blobs.get(letter.body_ref).decode() == body
    assert body.startswith(letter.body)
    assert len(letter.body) == 2_000


def test_a_redelivered_dead_letter_is_kept_once() -> None:
    p = Harness()
    p.deliver_dead("nonsense")
    p.deliver_dead("nonsense")
    assert len(p.letters) == 1


class Away(InMemoryJobs):
    """A store that is unavailable while `refuse` is set."""

    refuse = ""

    def record_dead_letter(self, letter: DeadLetter) -> bool:
        if self.refuse == "letters":
            raise TransientError(ErrorCode.DATABASE_UNAVAILABLE, "away")
        return super().record_dead_letter(letter)

    def transaction(self, work: Callable[[JobsTx], T]) -> T:
        if self.refuse == "results":
            raise TransientError(ErrorCode.DATABASE_UNAVAILABLE, "away")
        if self.refuse == "defect":
            raise RuntimeError("a defect")
        return super().transaction(work)


@pytest.mark.parametrize("refuse", ["letters", "results", "defect"])
def test_nothing_is_lost_while_it_cannot_be_kept_or_applied(refuse: str) -> None:
    p = Harness()
    job_id = p.submit()
    assert isinstance(p.store, InMemoryJobs)
    p.store.__class__ = Away
    p.store.refuse = refuse  # type: ignore[attr-defined]
    body = p.scrape.bodies[0]
    stays = p.deliver_dead(body, "nonsense")
    assert stays == (["0", "1"] if refuse == "letters" else ["0"])
    assert p.status(job_id) == "scraping"
    p.store.refuse = ""  # type: ignore[attr-defined]
    assert p.deliver_dead(body, "nonsense") == []
    assert error_code(p, job_id) == "poison_message"
    assert len(p.letters) == 2


def test_results_of_an_unknown_job_are_late() -> None:
    p = Harness()
    assert p.deliver_dead(write(scraped("nobody"))) == []


@pytest.mark.shows("S33")
@pytest.mark.parametrize(
    "arn", ["arn:aws:sqs:eu-west-1:1:ScrapeQueue", "arn:aws:sqs:eu-west-1:2:ScrapeDlq", ""]
)
def test_records_of_another_queue_are_refused_before_anything_is_done(
    arn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapped to a work queue by mistake, the function would fail jobs whose messages wait there."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    dlqs = {
        f"{name}_DLQ_URL": f"https://sqs.invalid/1/{name.title()}Dlq"
        for name in ("CHUNK", "EMBED", "CALLBACKS")
    }
    given = {
        **environment("OrchestratorDeadLetters"),
        **dlqs,
        "SCRAPE_DLQ_URL": "https://sqs.invalid/1/ScrapeDlq",
    }
    handle = build_dead_letters(OrchestratorDeadLettersSettings.from_environment(given))
    with pytest.raises(Defect, match="another queue"):
        handle({"Records": [dead("{}") | {"eventSourceARN": arn}]}, None)


def test_a_dead_letter_is_counted_once_however_often_it_is_delivered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    p = Harness()
    ahead = write(embedded(p.submit()))
    for receives in (1, 2, 3):
        assert p.deliver_dead(ahead, receives=receives) == ["0"]
    assert emitted(capsys, "dead_letters_total") == [(1.0, {"queue": "Dlq", "cause": "dead_callback"})]


def test_a_dead_letter_that_could_not_be_kept_is_counted_when_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    p = Harness()
    assert isinstance(p.store, InMemoryJobs)
    p.store.__class__ = Away
    p.store.refuse = "letters"  # type: ignore[attr-defined]
    assert p.deliver_dead("nonsense") == ["0"]
    assert emitted(capsys, "dead_letters_total") == []
    p.store.refuse = ""  # type: ignore[attr-defined]
    assert p.deliver_dead("nonsense", receives=2) == []
    assert emitted(capsys, "dead_letters_total") == [(1.0, {"queue": "Dlq", "cause": "foreign"})]


def test_what_a_worker_set_aside_keeps_its_reason() -> None:
    p = Harness()
    job_id = p.submit()
    body = p.scrape.bodies[0]
    said = {"reason": {"stringValue": "token_limit_exceeded", "dataType": "String"}}
    moved: list[dict[str, Any]] = [
        dead(body, "0") | {"messageAttributes": said},
        dead(UNREADABLE, "1") | {"messageAttributes": said},
        dead(body, "2") | {"messageAttributes": {}},
        dead(body, "3"),
    ]
    p.keep({"Records": moved})
    assert [(letter.cause, letter.reason) for letter in p.letters] == [
        ("poison_message", "token_limit_exceeded"),
        ("unreadable", "token_limit_exceeded"),
        *[("poison_message", "received too often")] * 2,
    ]
    assert error_code(p, job_id) == "poison_message"


def test_lines_about_a_dead_letter_have_its_ids(capsys: pytest.CaptureFixture[str]) -> None:
    p = Harness()
    p.keep = replace(p.keep, observability=Observability("dead-letters"))
    job_id = p.submit()
    assert isinstance(p.store, InMemoryJobs)
    p.store.__class__ = Away
    for refuse, message in (("letters", "dead_letter.stays"), ("defect", "dead_letter.failed")):
        p.store.refuse = refuse  # type: ignore[attr-defined]
        p.deliver_dead(p.scrape.bodies[0])
        lines = [json.loads(each) for each in capsys.readouterr().out.splitlines() if message in each]
        ids = [(line["sqs_message_id"], line["job_id"], line["request_id"]) for line in lines]
        assert ids == [("0", job_id, "req-1")]

"""I12 outside the database: what is planted in queues, the bucket, the table and logs is found there."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from local.backends.ministack import MiniStack
from local.backends.postgres_logins import PASSWORD
from local.faults.activation import control_folder
from local.faults.cloud import Cloud
from local.faults.control import FaultControl
from local.faults.invariants import secrets, stores
from local.faults.invariants.report import violations, wait_until_idle
from tests.faults.arena import Arena
from tests.support.ministack import REGION
from tests.support.state_table import dynamodb, new_table

KEY, TEXT = "the-key-of-somebody", "words of a document"
QUEUES = ("ScrapeQueue", "ScrapeDlq")
SOUGHT = [secrets.Canary("key", KEY), secrets.Canary("text", TEXT, secrets.DOCUMENT_STORE)]


@pytest.fixture
def cloud(ministack: MiniStack, tmp_path: Path) -> Iterator[Cloud]:
    """Yield queues, a bucket and a table, all empty."""
    resources = {"ContentBucket": f"b-{uuid.uuid4().hex[:8]}", "StateTable": new_table(dynamodb(ministack))}
    info = {
        "aws_endpoint": ministack.endpoint,
        "region": REGION,
        "resources": resources,
        "state": str(tmp_path),
    }
    made = Cloud(info)
    made.s3.create_bucket(
        Bucket=resources["ContentBucket"], CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    for name in QUEUES:
        resources[name] = made.sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    FaultControl(control_folder(tmp_path)).reset()
    yield made
    for client in (made.sqs, made.s3, made.dynamodb):
        client.close()


def send(cloud: Cloud, queue: str, body: str, attribute: str = "-") -> None:
    cloud.sqs.send_message(
        QueueUrl=cloud.queues[queue],
        MessageBody=body,
        MessageAttributes={"note": {"DataType": "String", "StringValue": attribute}},
    )


def put(cloud: Cloud, key: str, body: str, note: str = "-") -> None:
    bucket = cloud.info["resources"]["ContentBucket"]
    cloud.s3.put_object(Bucket=bucket, Key=key, Body=body.encode(), Metadata={"note": note})


def keep(cloud: Cloud, key: str, value: str) -> None:
    item: Any = {"pk": {"S": key}, "value": {"L": [{"S": value}]}}
    cloud.dynamodb.put_item(TableName=cloud.info["resources"]["StateTable"], Item=item)


def found(cloud: Cloud) -> set[tuple[str, str]]:
    """Return secrets found where they must not be."""
    texts = list(stores.contents(cloud, cloud.depths()))
    texts = [
        (each.name, place)
        for place, text in texts
        for each in secrets.forbidden_in(SOUGHT, place)
        if each.occurs_in(text)
    ]
    return set(texts)


PLANTED: dict[str, tuple[Callable[[Cloud], None], set[tuple[str, str]]]] = {
    "nothing": (lambda cloud: None, set()),
    "a text where it belongs": (
        lambda cloud: [send(cloud, "ScrapeQueue", TEXT), put(cloud, "raw/ab", TEXT)],
        set(),
    ),
    "a key in a message": (
        lambda cloud: send(cloud, "ScrapeQueue", f"[{KEY}]"),
        {("key", "messages ScrapeQueue")},
    ),
    "a key in an attribute of a dead letter": (
        lambda cloud: send(cloud, "ScrapeDlq", "-", KEY),
        {("key", "messages ScrapeDlq")},
    ),
    "a key in a message that was sent": (
        lambda cloud: cloud.control.record_sent([{"MessageBody": "-", "MessageAttributes": {"a": KEY}}]),
        {("key", "messages sent")},
    ),
    "a key and a text in the table": (
        lambda cloud: [keep(cloud, "note#1", f"{KEY} {TEXT}"), keep(cloud, "note#2", "-")],
        {("key", "items note#1"), ("text", "items note#1")},
    ),
    "a key in the name of an item": (lambda cloud: keep(cloud, KEY, "-"), {("key", f"items {KEY}")}),
    "a key in content": (lambda cloud: put(cloud, "raw/ab", KEY), {("key", "content raw/ab")}),
    "a key beside content": (lambda cloud: put(cloud, "text/ab", TEXT, KEY), {("key", "content text/ab")}),
    "a text outside": (lambda cloud: put(cloud, "dump/ab", TEXT), {("text", "objects dump/ab")}),
    "a key in a name": (
        lambda cloud: put(cloud, f"chunks/{KEY}", "-"),
        {("key", "objects keys")},
    ),
}


@pytest.mark.shows("S19")
@pytest.mark.integration
@pytest.mark.parametrize(("plant", "expected"), PLANTED.values(), ids=PLANTED)
def test_what_is_planted_is_found(
    cloud: Cloud, plant: Callable[[Cloud], None], expected: set[tuple[str, str]]
) -> None:
    plant(cloud)
    assert found(cloud) == expected
    assert found(cloud) == expected, "looking takes nothing away"


@pytest.mark.shows("S19", "B88")
@pytest.mark.e2e
def test_what_a_stack_tells_where_it_must_not_is_found(kept: Arena) -> None:
    job = kept.submit(kept.page(kept.token("told")))
    assert wait_until_idle(kept.cloud, 60).reached
    sent = kept.cloud.control.sent().splitlines()
    stages = ("indexmill.scrape", "indexmill.embed", "indexmill.result")
    assert [each for each in stages if not any(each in line and job.job_id in line for line in sent)] == []
    assert [str(each) for each in violations(kept.cloud, [job])] == []
    with psycopg.connect(kept.stack.database_url) as database:
        (vector,) = database.execute(
            "SELECT embedding::text FROM vectors ORDER BY chunk DESC"
        ).fetchone() or ("",)
    log = Path(kept.stack.state) / "logs" / "functions" / "Planted.jsonl"
    log.write_text(
        f"{PASSWORD} Authorization: Bearer x {vector.replace(',', ', ')} {job.url}", encoding="utf-8"
    )
    try:
        found = {each.subject for each in violations(kept.cloud, [job]) if "Planted" in each.what}
    finally:
        log.unlink()
    assert found == {"the database's password", "an Authorization header", "a vector", "a URL's query"}

"""Robots rules in DynamoDB."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from indexmill.scraper.token_bucket import KnownRobots, RobotsCache
from tests.twins.clock import FrozenClock

SITE = "https://example.com"


@pytest.fixture
def dynamodb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from moto import mock_aws  # takes a second: not in each worker of a test run

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        client: Any = boto3.client("dynamodb", region_name="eu-central-1")
        client.create_table(
            TableName="state",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        yield client


def test_rules_are_remembered_until_they_expire(dynamodb: Any) -> None:
    clock = FrozenClock()
    cache = RobotsCache("state", clock, dynamodb)
    assert cache.get(SITE) is None
    now = clock.now().timestamp()
    known = KnownRobots("Disallow: /ä\nAllow: /b", now + 30, now + 60)
    cache.put(SITE, known)
    assert cache.get(SITE) == known
    assert cache.get("http://example.com") is None
    clock.tick(60)
    assert cache.get(SITE) is None


def test_an_item_names_its_origin_and_its_end(dynamodb: Any) -> None:
    clock = FrozenClock()
    RobotsCache("state", clock, dynamodb).put(
        SITE, KnownRobots("", clock.now().timestamp() + 30, clock.now().timestamp() + 60)
    )
    (item,) = dynamodb.scan(TableName="state")["Items"]
    assert item["pk"] == {"S": "robots#https://example.com"}
    assert item["expires_at"] == {"N": str(int(clock.now().timestamp()) + 60)}


def test_that_rules_could_not_be_read_is_remembered(dynamodb: Any) -> None:
    clock = FrozenClock()
    cache = RobotsCache("state", clock, dynamodb)
    known = KnownRobots(None, clock.now().timestamp() + 60, clock.now().timestamp() + 60)
    cache.put(SITE, known)
    assert cache.get(SITE) == known


def test_an_item_of_the_release_before_is_fresh_until_it_expires(dynamodb: Any) -> None:
    item = {
        "pk": {"S": f"robots#{SITE}"},
        "rules": {"B": zlib.compress(b"Disallow: /a")},
        "expires_at": {"N": "99999999999"},
    }
    dynamodb.put_item(TableName="state", Item=item)
    known = RobotsCache("state", FrozenClock(), dynamodb).get(SITE)
    assert known == KnownRobots("Disallow: /a", 99999999999.0, 99999999999.0)


def test_no_rules_are_worth_remembering_too(dynamodb: Any) -> None:
    clock = FrozenClock()
    cache = RobotsCache("state", clock, dynamodb)
    cache.put(SITE, KnownRobots("", clock.now().timestamp() + 60, clock.now().timestamp() + 60))
    found = cache.get(SITE)
    assert found is not None
    assert found.rules == ""


def test_an_unavailable_cache_is_treated_as_empty(dynamodb: Any, caplog: pytest.LogCaptureFixture) -> None:
    cache = RobotsCache("no-such-table", FrozenClock(), dynamodb)
    cache.put(SITE, KnownRobots("", 9e9, 9e9))
    assert cache.get(SITE) is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_an_item_that_was_tampered_with_is_forgotten(dynamodb: Any) -> None:
    for item in (
        {"expires_at": {"N": "99999999999"}},
        {"expires_at": {"N": "99999999999"}, "rules": {"B": b"x"}},
    ):
        dynamodb.put_item(TableName="state", Item={"pk": {"S": f"robots#{SITE}"}, **item})
        assert RobotsCache("state", FrozenClock(), dynamodb).get(SITE) is None


def test_rules_too_large_for_an_item_are_not_kept(dynamodb: Any) -> None:
    import random

    cache = RobotsCache("state", FrozenClock(), dynamodb)
    cache.put(SITE, KnownRobots(random.Random(1).randbytes(300_000).hex(), 9e9, 9e9))
    assert cache.get(SITE) is None

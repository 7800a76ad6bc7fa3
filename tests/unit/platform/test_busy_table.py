"""A table that answers for a part of what it was asked: what it left out is not what is not there."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from indexmill.platform.aws.state_table import StoreUnavailable
from indexmill.platform.breakers import BreakerStates
from indexmill.platform.consumer.delivery_log import DeliveryLog, DeliveryRecord
from tests.twins.clock import FrozenClock

TABLE = "state"


@pytest.fixture
def client() -> Any:
    make: Any = boto3.client
    return make("dynamodb", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")


def answer(items: list[dict[str, Any]], left_out: str | None = None) -> dict[str, Any]:
    rest = {TABLE: {"Keys": [{"pk": {"S": left_out}}]}} if left_out else {}
    return {"Responses": {TABLE: items}, "UnprocessedKeys": rest}


def note(name: str) -> dict[str, Any]:
    numbers = {"released": "4", "tries": "2", "crashes": "0", "expires_at": "9999999999"}
    return {
        "pk": {"S": f"release#{name}"},
        "begun": {"BOOL": False},
        **{key: {"N": value} for key, value in numbers.items()},
    }


def test_a_note_that_was_left_out_is_asked_for_again(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_response("batch_get_item", answer([note("a")], "release#b"))
        stub.add_response("batch_get_item", answer([note("b")]))
        found = DeliveryLog(TABLE, FrozenClock(), client).read(["a", "b"])
    assert found == dict.fromkeys("ab", DeliveryRecord(receives=4, tries=2))


def test_what_is_left_out_twice_is_not_known(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_response("batch_get_item", answer([note("a")], "release#b"))
        stub.add_response("batch_get_item", answer([], "release#b"))
        found = DeliveryLog(TABLE, FrozenClock(), client).read(["a", "b"])
    assert found == {"a": DeliveryRecord(receives=4, tries=2)}


def test_a_breaker_that_was_left_out_is_not_taken_for_a_closed_one(client: Any) -> None:
    states = BreakerStates(TABLE, FrozenClock(), client)
    with Stubber(client) as stub:
        for _ in range(2):
            stub.add_response("batch_get_item", answer([], "breaker#index"))
        with pytest.raises(StoreUnavailable):
            states.read()

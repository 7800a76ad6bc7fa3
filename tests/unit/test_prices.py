"""The price table as a setting."""

from __future__ import annotations

import re

import pytest

from indexmill.contracts.cost import Prices
from tests.support.function_env import template


def test_what_is_not_named_has_its_list_price() -> None:
    prices = Prices.parse(" sqs_request=0.5, s3_write = 0 ")
    assert (prices.sqs_request, prices.s3_write) == (0.5, 0.0)
    assert prices.lambda_gb_s == Prices().lambda_gb_s
    assert Prices.parse("") == Prices()


@pytest.mark.parametrize("text", ["sqs=1", "sqs_request", "sqs_request=-1", "sqs_request=much"])
def test_a_wrong_price_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="sqs"):
        Prices.parse(text)


def test_the_template_takes_every_price_and_no_other() -> None:
    pattern = template()["Parameters"]["Prices"]["AllowedPattern"]
    every = ",".join(f"{name}={number / 4}" for number, name in enumerate(Prices.model_fields))
    assert re.fullmatch(pattern, every)
    assert Prices.parse(every).embedding_token == 2.0
    assert re.fullmatch(pattern, "")
    assert not re.fullmatch(pattern, "sqs_requests=0.4")

"""Roots of callers: rotation of keys, Membership's own ids, and an unavailable state table."""

from __future__ import annotations

import pytest

from indexmill.access.identify import Identify
from indexmill.contracts.identity import CallerContext
from indexmill.platform.observability import Observability
from tests.twins.state_table import InMemoryRoots

HASH, CLAIM = "0" * 16, "user_abc"


def identify(known: InMemoryRoots, caller_id: str = CLAIM) -> Identify:
    ctx = CallerContext(caller_id, key_id=HASH)
    return Identify(lambda _key: ctx, known, Observability("test", level="CRITICAL"))


@pytest.mark.shows("S4", "R086", "R087")
@pytest.mark.parametrize(
    ("caller_id", "known", "root"),
    [
        (HASH, {}, HASH),
        (HASH, {HASH: HASH}, HASH),
        (HASH, {HASH: "first"}, "first"),
        (CLAIM, {}, CLAIM),
        (CLAIM, {CLAIM: "first", HASH: "other"}, "first"),
        (CLAIM, {HASH: HASH}, HASH),
        (CLAIM, {HASH: "first"}, "first"),
    ],
)
def test_the_claimed_id_comes_first_then_the_hash(caller_id: str, known: dict[str, str], root: str) -> None:
    source = InMemoryRoots(known)
    ctx = identify(source, caller_id)("key")
    assert (ctx.caller_id, ctx.alias) == (root, "" if root == caller_id else caller_id)
    assert ctx.key_id == HASH
    keys = [{"pk": {"S": f"caller#{each}"}} for each in dict.fromkeys([caller_id, HASH])]
    assert source.client.requests == [("BatchGetItem", {"RequestItems": {"state": {"Keys": keys}}})], (
        "one look"
    )


def test_without_the_table_the_last_root_counts_and_no_key_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = InMemoryRoots()
    known.unavailable = True
    who = identify(known)
    assert who("key").caller_id == CLAIM
    known.unavailable = False
    known.know({CLAIM: "first"})
    assert who("key").caller_id == "first"
    known.unavailable = True
    assert who("key").caller_id == "first"
    who.observability.flush()
    assert "caller_roots_unavailable_total" in capsys.readouterr().out

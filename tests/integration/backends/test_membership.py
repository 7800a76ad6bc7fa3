from __future__ import annotations

import json
import time

import httpx
import pytest

from tests.integration.backends.conftest import KEYS, Membership, StartMembership

ANN, BOB, UNKNOWN = "key-of-ann", "key-of-bob", "key-of-nobody"


@pytest.mark.parametrize(("codes", "valid", "invalid"), [("legacy", 201, 409), ("fixed", 200, 401)])
async def test_the_codes_are_the_old_or_the_repaired_ones(
    membership: Membership, codes: str, valid: int, invalid: int
) -> None:
    await membership.control(codes=codes)
    assert (await membership.auth(ANN)).status_code == valid
    refused = await membership.auth(UNKNOWN)
    assert (refused.status_code, refused.json()) == (invalid, {"detail": "Invalid API key"})


async def test_each_phase_returns_more_claims_of_a_valid_key(membership: Membership) -> None:
    ann = KEYS[ANN]
    assert ann is not None
    answers = {}
    for phase in (1, 2, 3, 4):
        await membership.control(phase=phase)
        answer = await membership.auth(ANN)
        assert answer.status_code == 200
        answers[phase] = json.loads(answer.content or b"null")
    assert answers == {
        1: None,
        2: {"caller_type": "service"},
        3: {name: ann[name] for name in ("caller_type", "tier", "rate_limits")},
        4: ann,
    }


async def test_a_key_without_claims_is_a_users(membership: Membership) -> None:
    for phase in (2, 3, 4):
        await membership.control(phase=phase)
        assert (await membership.auth(BOB)).json() == {"caller_type": "user"}


async def test_the_key_may_come_as_a_header(membership: Membership) -> None:
    assert (await membership.client.post("/auth", headers={"X-API-Key": ANN})).status_code == 200
    assert (await membership.client.post("/auth", headers={"x-api-key": UNKNOWN})).status_code == 401


@pytest.mark.parametrize("body", [b"", b"not JSON", b"[]", b"{}", b'{"api_key": 7}', b'{"api_key": null}'])
async def test_a_request_without_a_key_is_a_bad_one(membership: Membership, body: bytes) -> None:
    assert (await membership.client.post("/auth", content=body)).status_code == 400


async def test_a_key_is_revoked_and_added_by_its_file(membership: Membership) -> None:
    assert (await membership.auth(ANN)).status_code == 200
    membership.keys_file.write_text(json.dumps({UNKNOWN: {"tier": "silver"}}))
    assert (await membership.auth(ANN)).status_code == 401
    assert (await membership.auth(UNKNOWN)).json() == {"caller_type": "user", "tier": "silver"}


async def test_down_is_a_lost_connection(membership: Membership) -> None:
    await membership.control(mode="down")
    with pytest.raises(httpx.TransportError):
        await membership.auth(ANN)
    await membership.control(mode="ok")
    assert (await membership.auth(ANN)).status_code == 200


async def test_answers_that_are_no_use(membership: Membership) -> None:
    await membership.control(mode="500")
    assert (await membership.auth(ANN)).status_code == 500
    await membership.control(mode="garbage")
    garbage = await membership.auth(ANN)
    assert (garbage.status_code, garbage.headers["Content-Type"][:9]) == (200, "text/html")
    await membership.control(mode="redirect")
    moved = await membership.auth(ANN)
    assert (moved.status_code, moved.headers["Location"]) == (302, "/elsewhere")
    await membership.control(mode="wrong_types")
    assert {type(value) for value in (await membership.auth(ANN)).json().values()} == {int, list, dict, str}
    await membership.control(mode="huge")
    assert len((await membership.auth(ANN)).content) > 10_000_000


async def test_a_slow_answer_is_late_but_right(membership: Membership) -> None:
    for body in ({"mode": "slow", "delay": 0.2}, {"mode": "ok", "delay": 0.2}):
        await membership.control(**body)
        began = time.monotonic()
        assert (await membership.auth(UNKNOWN)).status_code == 401
        assert time.monotonic() - began >= 0.2


async def test_slow_is_seconds_by_default(membership: Membership) -> None:
    await membership.control(mode="slow")
    assert (await membership.state())["delay"] >= 1


async def test_phase_and_codes_may_be_set_at_the_start_and_later(start_membership: StartMembership) -> None:
    membership: Membership = await start_membership("--phase", "2", "--codes", "legacy")
    ann = await membership.auth(ANN)
    assert (ann.status_code, ann.json()) == (201, {"caller_type": "service"})
    assert (await membership.auth(UNKNOWN)).status_code == 409
    expected = {"mode": "ok", "delay": 0.0, "phase": 2, "codes": "legacy", "calls": 2}
    assert await membership.state() == expected
    await membership.control(codes="fixed")
    assert await membership.state() == {**expected, "codes": "fixed"}


@pytest.mark.parametrize("body", [{"mode": "sulking"}, {"phase": 5}, {"phase": "1"}, {"codes": "new"}])
async def test_control_refuses_what_there_is_not(membership: Membership, body: dict[str, object]) -> None:
    before = await membership.state()
    refused = await membership.client.post("/control", json={"mode": "down", **body})
    assert refused.status_code == 400
    assert refused.json()["choices"]["phase"] == [1, 2, 3, 4]
    assert await membership.state() == before

"""Membership over HTTP: where the key is, the time of a question, its breaker, the phases of its claims."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from indexmill.access.adapters.http_membership import HttpMembership
from indexmill.access.authorize import Unauthorized
from indexmill.access.settings import AuthorizerSettings, AuthStyle
from indexmill.access.wiring import build_authorizer
from indexmill.contracts.errors import TransientError
from indexmill.contracts.identity import key_hash
from local.backends.membership import Keys, Membership
from tests.support.aiohttp_server import served
from tests.twins.state_table import InMemoryRoots

ARN = "arn:aws:execute-api:eu-west-1:000000000000:api/dev/GET/orchestrator/jobs"
KEY = "key-of-ann"
CLAIMS = {
    "caller_id": "user_abc",
    "caller_type": "service",
    "tier": "pro",
    "scopes": ["orchestrator:read"],
    "rate_limits": {"requests": 7, "window_seconds": 60},
    "not_known_yet": {"a": 1},
}

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")

Answer = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]


def settings(url: str) -> AuthorizerSettings:
    return AuthorizerSettings(membership_url=url, log_level="CRITICAL", state_table="none")


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    app = web.Application()
    app.router.add_post("/auth", answer)
    with served(app) as url:
        yield url


@pytest.mark.shows("R077")
@pytest.mark.parametrize(
    ("style", "body", "header"),
    [("body", {"api_key": KEY}, None), ("header", {}, KEY), ("both", {"api_key": KEY}, KEY)],
)
def test_the_key_is_where_membership_reads_it(style: AuthStyle, body: object, header: str | None) -> None:
    seen: list[tuple[object, str | None]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((await request.json(), request.headers.get("X-API-Key")))
        return web.Response()

    with answering(answer) as url:
        assert HttpMembership(url, style=style).authenticate(KEY) == {}
        # And so does the function, by its setting.
        own = settings(url).model_copy(update={"membership_auth_style": style})
        build_authorizer(own, roots=InMemoryRoots())({"methodArn": ARN, "headers": {"X-API-Key": KEY}})
    assert seen == [(body, header)] * 2


@pytest.mark.shows("R075")
@pytest.mark.fault("F48")
def test_two_seconds_are_for_the_whole_question_and_slow_answers_open_the_breaker() -> None:
    asked = 0

    async def drip(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(40):
            await answer.write(b" ")
            await asyncio.sleep(0.2)
        return answer

    with answering(drip) as url:
        membership = HttpMembership(url)
        for expected in (1, 2, 3, 3):
            began = time.monotonic()
            with pytest.raises(TransientError) as caught:
                membership.authenticate(KEY)
            assert caught.value.code == "auth_unavailable"
            assert time.monotonic() - began < 2.6
            assert asked == expected


@pytest.mark.shows("R082")
def test_an_open_breaker_lets_one_question_through_after_its_time() -> None:
    asked, well = 0, False

    async def answer(_request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(status=200 if well else 500)

    def refused(times: int) -> None:
        for _ in range(times):
            with pytest.raises(TransientError):
                membership.authenticate(KEY)

    with answering(answer) as url:
        own = settings(url).model_copy(update={"membership_breaker_seconds": 0.5})
        membership = build_authorizer(own, roots=InMemoryRoots()).validate.validate.membership
        refused(5)
        assert asked == 3
        opened = time.monotonic()
        while asked == 3:
            refused(1)
        # Not the default, half a minute.
        assert 0.4 < time.monotonic() - opened < 25
        # The probe failed: it is open for as long again.
        well, opened = True, time.monotonic()
        while asked == 4:
            with suppress(TransientError):
                membership.authenticate(KEY)
        assert time.monotonic() - opened > 0.4
        membership.authenticate(KEY)
        membership.authenticate(KEY)
        assert asked == 7


@pytest.mark.fault("F53")
def test_a_breaker_of_membership_is_of_its_environment_alone() -> None:
    asked = 0

    async def answer(_request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(status=500)

    with answering(answer) as url:
        for environment in (HttpMembership(url), HttpMembership(url)):
            for _ in range(5):
                with pytest.raises(TransientError):
                    environment.authenticate(KEY)
    assert asked == 6


@pytest.mark.shows("B87", "S14")
@pytest.mark.fault("F50")
@pytest.mark.parametrize(
    "claims",
    [
        {"caller_id": ""},
        {"caller_id": "a/b"},
        {"caller_id": "a\0b"},
        {"caller_id": "a\nb"},
        {"caller_id": "a#b"},
        {"caller_id": "a b"},
        {"caller_id": "ü"},
        {"caller_id": "x" * 129},
        {"caller_id": 7},
        {"caller_type": ["user"]},
        {"caller_type": "root"},
        {"tier": {}},
        {"tier": "x" * 101},
        {"scopes": "a"},
        {"scopes": [1]},
        {"scopes": ["two words"]},
        {"scopes": ["a"] * 101},
        {"scopes": None},
    ],
)
def test_claims_of_a_wrong_type_are_an_outage_that_is_counted(
    claims: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response(claims)

    with answering(answer) as url:
        authorize = build_authorizer(settings(url), roots=InMemoryRoots())
        with pytest.raises(TransientError) as caught:
            authorize({"methodArn": ARN, "headers": {"X-API-Key": KEY}})
    assert caught.value.code == "auth_unavailable"
    assert "membership_claims_invalid_total" in capsys.readouterr().out


@pytest.mark.shows("R079")
@pytest.mark.parametrize(
    ("claims", "named"),
    [
        ({"rate_limits": {"requests": "many"}}, ["rate_limits"]),
        ({"rate_limits": [7, 60]}, ["rate_limits"]),
        ({"tier": 7, "scopes": ["two words"]}, ["scopes", "tier"]),
    ],
)
def test_the_operator_reads_which_claims_of_which_key_are_wrong_and_no_value(
    claims: dict[str, Any], named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[str, dict[str, Any]]] = []

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response(claims)

    with answering(answer) as url:
        authorize = build_authorizer(settings(url), roots=InMemoryRoots())
        log = authorize.observability.log
        monkeypatch.setattr(log, "error", lambda message, extra: logged.append((message, extra)))
        with pytest.raises(TransientError):
            authorize({"methodArn": ARN, "headers": {"X-API-Key": KEY}})
    assert logged == [("membership.claims_invalid", {"claims": named, "key_id": key_hash(KEY)})]


@pytest.mark.shows("R079", "R080", "R086")
@pytest.mark.parametrize(
    ("phase", "caller_id", "caller_type", "tier", "scopes"),
    [
        (1, key_hash(KEY), "unknown", "", None),
        (2, key_hash(KEY), "service", "", None),
        (3, key_hash(KEY), "service", "pro", None),
        (4, "user_abc", "service", "pro", '["orchestrator:read"]'),
    ],
)
@pytest.mark.parametrize("codes", ["legacy", "fixed"])
def test_each_phase_of_membership_tells_more_of_the_same_caller(
    tmp_path: Path, codes: str, phase: int, caller_id: str, caller_type: str, tier: str, scopes: str | None
) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({KEY: CLAIMS}))
    with served(Membership(Keys(file), phase, codes).app()) as url:
        authorize = build_authorizer(settings(url), roots=InMemoryRoots())
        context = authorize({"methodArn": ARN, "headers": {"X-API-Key": KEY}})["context"]
    reported = {name: context[name] for name in ("caller_id", "caller_type", "tier")}
    assert reported == {"caller_id": caller_id, "caller_type": caller_type, "tier": tier}
    assert context.get("granted_scopes") == scopes
    # Whatever Membership says of its type: internal is who has an internal key.
    assert context["internal"] == "false"


@pytest.mark.shows("B26", "B27")
def test_only_the_key_itself_in_the_header_is_the_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({KEY: None}))
    wrong = [f"{KEY}x", KEY[:-1], KEY.upper(), f'{{"api_key": "{KEY}"}}', f"{KEY}' OR '1'='1", f"x {KEY}"]
    with served(Membership(Keys(file), 1, "fixed").app()) as url:
        authorize = build_authorizer(settings(url), roots=InMemoryRoots())
        for key in wrong:
            with pytest.raises(Unauthorized):
                authorize({"methodArn": ARN, "headers": {"X-API-Key": key}})
        elsewhere = {"queryStringParameters": {"X-API-Key": KEY, "api_key": KEY}, "body": KEY}
        with pytest.raises(Unauthorized):
            authorize({"methodArn": ARN, "headers": {"Authorization": KEY}, **elsewhere})
        assert authorize({"methodArn": ARN, "headers": {"X-API-Key": KEY}})["principalId"] == key_hash(KEY)

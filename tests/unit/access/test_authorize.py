"""Keys, claims and outages, against a real HTTP Membership of the test's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from indexmill.access.authorize import Authorize, Unauthorized
from indexmill.access.settings import AuthorizerSettings
from indexmill.access.wiring import build_authorizer
from indexmill.contracts.errors import TransientError
from indexmill.contracts.identity import caller_of_claims, key_hash
from tests.twins.state_table import InMemoryRoots

ARN = "arn:aws:execute-api:eu-west-1:000000000000:api/dev/GET/orchestrator/jobs"


class Membership:
    """Gives the configured answer, and counts."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] = (200, b"")
        self.calls = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.calls += 1
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = (401, b"") if body["api_key"] == "wrong" else outer.answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def membership() -> Iterator[Membership]:
    stub = Membership()
    thread = threading.Thread(target=stub.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield stub
    stub.server.shutdown()
    stub.server.server_close()
    thread.join()


def authorizer(stub: Membership, internal: str = "") -> Authorize:
    settings = AuthorizerSettings(
        membership_url=stub.url, internal_key_hashes=internal, log_level="CRITICAL", state_table="none"
    )
    return build_authorizer(settings, roots=InMemoryRoots())


def ask(authorize: Authorize, key: str) -> dict[str, Any]:
    return authorize({"methodArn": ARN, "headers": {"x-api-KEY": key}})


@pytest.mark.parametrize("status", [200, 201])
def test_a_valid_key_is_allowed_everywhere_as_its_hash(membership: Membership, status: int) -> None:
    membership.answer = (status, b"")
    reply = ask(authorizer(membership), "good")
    assert reply["context"]["caller_id"] == key_hash("good")
    assert reply["context"]["internal"] == "false"
    (statement,) = reply["policyDocument"]["Statement"]
    assert statement["Resource"] == "arn:aws:execute-api:eu-west-1:000000000000:api/dev/*/*"
    assert all(isinstance(value, str) for value in reply["context"].values())


def test_claims_win_over_the_hash(membership: Membership) -> None:
    claims = {
        "caller_id": "user_abc",
        "tier": "pro",
        "caller_type": "user",
        "scopes": ["embedding:read", "scraper:*", "ops"],
        "new": {},
    }
    membership.answer = (200, json.dumps(claims).encode())
    context = ask(authorizer(membership), "good")["context"]
    assert (context["caller_id"], context["tier"], context["granted_scopes"]) == (
        "user_abc",
        "pro",
        '["embedding:read","scraper:*"]',
    )


@pytest.mark.shows("P080")
@pytest.mark.parametrize(
    ("claims", "granted"),
    [
        ({}, None),
        ({"scopes": []}, ()),
        ({"scopes": ["jobs:read", "ops"]}, ()),
        ({"scopes": ["embedding:read", "ops"]}, ("embedding:read",)),
    ],
)
def test_functions_get_a_list_of_scopes_only_where_one_is_claimed(
    membership: Membership, claims: dict[str, Any], granted: tuple[str, ...] | None
) -> None:
    membership.answer = (200, json.dumps(claims).encode())
    context = ask(authorizer(membership), "good")["context"]
    # Were an empty list an empty text, a gateway that leaves those out would lift the restriction.
    assert bool(context.get("granted_scopes")) == (granted is not None)
    assert caller_of_claims(context).scopes == granted


def test_what_the_authorizer_of_the_release_before_says_restricts_nothing() -> None:
    for scopes in ("", "embedding:read"):
        context = {"caller_id": "user_abc", "caller_type": "user", "tier": "", "scopes": scopes}
        caller_of_claims({**context, "internal": "false", "key_id": "", "alias": ""}).require(
            "embedding:delete"
        )


@pytest.mark.parametrize(
    ("reported", "tier", "counted"),
    [("premium", "pro", False), ("FREE", "free", False), ("platinum", "free", True), (None, "", False)],
)
def test_an_unknown_tier_is_free_and_counted(
    membership: Membership, capsys: pytest.CaptureFixture[str], reported: str | None, tier: str, counted: bool
) -> None:
    membership.answer = (200, json.dumps({} if reported is None else {"tier": reported}).encode())
    assert ask(authorizer(membership), "good")["context"]["tier"] == tier
    assert ("unknown_tier_total" in capsys.readouterr().out) == counted


@pytest.mark.parametrize("status", [400, 401, 403, 409, 422])
def test_an_invalid_key_raises_exactly_the_word_that_means_401(membership: Membership, status: int) -> None:
    membership.answer = (status, b"")
    with pytest.raises(Unauthorized) as caught:
        ask(authorizer(membership), "bad")
    assert str(caught.value) == "Unauthorized"


@pytest.mark.shows("S5", "B28")
@pytest.mark.fault("F51")
def test_refused_keys_are_remembered_and_never_open_the_breaker(membership: Membership) -> None:
    authorize = authorizer(membership)
    for _ in range(5):
        with pytest.raises(Unauthorized):
            ask(authorize, "wrong")
    assert membership.calls == 1
    for number in range(5):
        membership.answer = (401, b"")
        with pytest.raises(Unauthorized):
            ask(authorize, f"bad-{number}")
    membership.answer = (200, b"")
    assert ask(authorize, "good")["principalId"] == key_hash("good")


@pytest.mark.shows("B24", "B25")
@pytest.mark.parametrize(
    "key", ["", "  ", "x" * 257, "x" * 8_192, "ключ", "a\nb", "a\r\nX-Internal: 1", "a\0", "\x7f"]
)
def test_an_impossible_key_is_refused_without_asking(membership: Membership, key: str) -> None:
    with pytest.raises(Unauthorized):
        ask(authorizer(membership), key)
    assert membership.calls == 0


@pytest.mark.shows("S14")
@pytest.mark.fault("F49", "F50")
@pytest.mark.parametrize(
    "answer",
    [
        (500, b""),
        (302, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b'{"caller_id": 5}'),
        (200, b'{"scopes": "a"}'),
        (200, b'{"tier": {}}'),
        (200, b"x" * 100_000),
    ],
)
def test_membership_in_trouble_is_an_outage_and_never_a_401(
    membership: Membership, answer: tuple[int, bytes]
) -> None:
    membership.answer = answer
    with pytest.raises(TransientError) as caught:
        ask(authorizer(membership), "good")
    assert caught.value.code == "auth_unavailable"


def test_after_three_failures_membership_is_left_alone(membership: Membership) -> None:
    authorize = authorizer(membership)
    membership.answer = (500, b"")
    for _ in range(6):
        with pytest.raises(TransientError):
            ask(authorize, "good")
    assert membership.calls == 3


@pytest.mark.parametrize("status", [302, 400, 404, 405, 422, 429])
def test_no_answer_to_one_key_closes_the_door_to_others(membership: Membership, status: int) -> None:
    authorize = authorizer(membership)
    membership.answer = (status, b"")
    for number in range(5):
        with pytest.raises((Unauthorized, TransientError)):
            ask(authorize, f"odd-{number}")
    assert membership.calls == 5
    membership.answer = (200, b"")
    assert ask(authorize, "good")["principalId"] == key_hash("good")


@pytest.mark.parametrize("status", [302, 404, 405, 429])
def test_a_wrong_url_looks_like_an_outage_and_is_counted(
    membership: Membership, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    authorize = authorizer(membership)
    membership.answer = (status, b"")
    with pytest.raises(TransientError) as caught:
        ask(authorize, "good")
    assert (caught.value.code, caught.value.retry_after) == ("auth_unavailable", 5)
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "membership_unexpected_total" in each]
    assert json.loads(line)["status"] == str(status)


def test_internal_callers_are_known_by_their_hash(membership: Membership) -> None:
    authorize = authorizer(membership, internal=f"{key_hash('ops')}, ffff")
    assert ask(authorize, "ops")["context"]["internal"] == "true"
    assert ask(authorize, "good")["context"]["internal"] == "false"


@pytest.mark.shows("R084")
@pytest.mark.parametrize("name", ["ORCHESTRATOR_KEY_HASH", "INTERNAL_KEY_HASHES"])
def test_a_key_whose_hash_is_in_the_environment_is_internal_and_no_other(
    membership: Membership, name: str
) -> None:
    """As the template sets it; Membership still has to know the key."""
    given = {"MEMBERSHIP_URL": membership.url, "STATE_TABLE": "none", name: key_hash("orchestrator")}
    settings = AuthorizerSettings.from_environment(given)
    authorize = build_authorizer(settings, roots=InMemoryRoots())
    membership.answer = (200, b"")
    assert ask(authorize, "orchestrator")["context"]["internal"] == "true"
    assert ask(authorize, "good")["context"]["internal"] == "false"
    without = build_authorizer(
        AuthorizerSettings.from_environment({**given, name: ""}), roots=InMemoryRoots()
    )
    assert ask(without, "orchestrator")["context"]["internal"] == "false"


@pytest.mark.shows("R084")
def test_a_hash_lets_no_key_in_that_membership_refuses(membership: Membership) -> None:
    given = {
        "MEMBERSHIP_URL": membership.url,
        "STATE_TABLE": "none",
        "ORCHESTRATOR_KEY_HASH": key_hash("wrong"),
    }
    authorize = build_authorizer(AuthorizerSettings.from_environment(given), roots=InMemoryRoots())
    with pytest.raises(Unauthorized):
        ask(authorize, "wrong")

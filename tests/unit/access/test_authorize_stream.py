"""Authorization of a job's stream: a key as everywhere, or a token for this job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from indexmill.access.authorize import Authorize, AuthorizeStream, Unauthorized
from indexmill.access.identify import InvalidKey
from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.identity import CallerContext
from indexmill.platform.aws.secrets import Secret
from indexmill.platform.observability import Observability
from indexmill.platform.security.stream_tokens import StreamGrant, sign
from tests.twins.clock import FrozenClock

JOB, OTHER = "5e2c11f4-0000-4000-8000-000000000000", "5e2c11f4-0000-4000-8000-000000000001"
ARN = f"arn:aws:execute-api:eu-west-1:000000000000:api/dev/GET/orchestrator/jobs/{JOB}/stream"
SECRET = "a secret of at least thirty-two bytes"


def validate(key: str) -> CallerContext:
    if key == "away":
        raise TransientError(ErrorCode.AUTH_UNAVAILABLE, "Away.")
    if key != "good":
        raise InvalidKey
    return CallerContext("caller-of-the-key", "user", "pro", ("scraper:write",))


class Door:
    """The authorizer, and tokens that it should know."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        by_key = Authorize(validate, Observability("test", level="CRITICAL"))
        self.authorize = AuthorizeStream(by_key, self.clock, Secret(SECRET))

    def token(self, job_id: str = JOB, secret: str = SECRET) -> str:
        return sign(secret, StreamGrant(job_id, "caller-of-the-token", self.clock.now() + timedelta(hours=1)))

    def ask(self, *, token: str | None = None, key: str | None = None) -> dict[str, Any]:
        # As API Gateway sends it: what is absent is an empty object.
        return self.authorize(
            {
                "methodArn": ARN,
                "pathParameters": {"job_id": JOB},
                "headers": {} if key is None else {"x-api-key": key},
                "queryStringParameters": {} if token is None else {"token": token},
            }
        )


def test_a_token_is_its_caller_for_this_method_alone() -> None:
    door = Door()
    answer = door.ask(token=door.token())
    assert answer["context"]["caller_id"] == answer["principalId"] == "caller-of-the-token"
    assert answer["context"]["internal"] == "false"
    assert answer["context"]["granted_scopes"] == '["orchestrator:read"]'
    assert answer["policyDocument"]["Statement"][0]["Resource"] == ARN


def test_a_key_is_asked_about_as_everywhere_and_wins() -> None:
    door = Door()
    for token in (None, door.token(), "nonsense"):
        context = door.ask(key="good", token=token)["context"]
        assert (context["caller_id"], context["tier"], context["granted_scopes"]) == (
            "caller-of-the-key",
            "pro",
            '["scraper:write"]',
        )
    with pytest.raises(Unauthorized):
        door.ask(key="wrong", token=door.token())


def test_an_outage_of_membership_is_no_refusal_and_no_matter_for_tokens() -> None:
    door = Door()
    with pytest.raises(TransientError):
        door.ask(key="away")
    assert door.ask(token=door.token())


@pytest.mark.parametrize(
    "case", ["neither", "empty", "nonsense", "another job's", "another secret's", "over"]
)
def test_anything_else_is_refused(case: str) -> None:
    door = Door()
    tokens = {
        "neither": None,
        "empty": "",
        "nonsense": "a.b",
        "another job's": door.token(OTHER),
        "another secret's": door.token(secret="guessed" * 5),
        "over": door.token(),
    }
    if case == "over":
        door.clock.tick(3_600)
    with pytest.raises(Unauthorized) as caught:
        door.ask(token=tokens[case])
    assert str(caught.value) == "Unauthorized"


def test_an_event_without_its_parts_is_refused() -> None:
    with pytest.raises(Unauthorized):
        Door().authorize({"methodArn": ARN, "headers": None, "queryStringParameters": None})

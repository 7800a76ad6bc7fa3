from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from local.front.server import FrontOptions
from local.template.spec import AuthorizerSpec, InvokeResult, Throttled
from tests.integration.front.harness import (
    ACCOUNT,
    KEY,
    REGION,
    Clock,
    Handler,
    Served,
    ServeFront,
    error_result,
    key_authorizer,
    policy,
    route,
)

ROUTES = (
    route("GET", "/jobs", authorizer="Key"),
    route("POST", "/jobs", authorizer="Key"),
    route("GET", "/jobs/{job_id}", authorizer="Key"),
    route("GET", "/open"),
)


async def guarded(
    serve: ServeFront, authorize: Handler, ttl_s: int = 300, clock: Clock | None = None
) -> Served:
    return await serve(
        *ROUTES,
        authorizers=[key_authorizer(ttl_s)],
        options=FrontOptions(monotonic=clock or Clock()),
        Authorize=authorize,
    )


def ask(served: Served, path: str = "/jobs", *, key: str = KEY, method: str = "GET") -> Any:
    return served.client.request(method, path, headers={"X-API-Key": key})


def refusal(answer: httpx.Response) -> tuple[int, str, object]:
    return answer.status_code, answer.headers["x-amzn-ErrorType"], answer.json()["message"]


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": ""}, {"X-Api": "a"}])
async def test_a_missing_header_is_refused_without_a_call(
    serve: ServeFront, headers: Mapping[str, str]
) -> None:
    served = await guarded(serve, lambda event: policy())
    answer = await served.client.get("/jobs", headers=headers)
    assert refusal(answer) == (401, "UnauthorizedException", "Unauthorized")
    assert not served.functions.events


async def test_every_identity_header_must_be_there(serve: ServeFront) -> None:
    served = await serve(
        *ROUTES, authorizers=[key_authorizer(300, "X-A", "X-B")], Authorize=lambda event: policy()
    )
    assert (await served.client.get("/jobs", headers={"X-A": "1"})).status_code == 401
    assert (await served.client.get("/jobs", headers={"x-b": "1", "x-a": "1"})).status_code == 200
    assert served.functions.calls == {"Authorize": 1, "Echo": 1}


async def test_an_open_route_calls_no_authorizer(serve: ServeFront) -> None:
    served = await guarded(serve, lambda event: policy("Deny"))
    assert (await served.client.get("/open")).status_code == 200
    assert served.functions.calls == {"Echo": 1}


@pytest.mark.shows("S5")
@pytest.mark.fault("F52")
async def test_an_answer_is_cached_by_key_until_it_expires(serve: ServeFront) -> None:
    clock = Clock()
    served = await guarded(serve, lambda event: policy(), ttl_s=60, clock=clock)
    for path, method in (("/jobs", "GET"), ("/jobs", "POST"), ("/jobs/7", "GET")):
        assert (await ask(served, path, method=method)).status_code == 200
    assert served.functions.calls["Authorize"] == 1
    await ask(served, key="another")
    assert served.functions.calls["Authorize"] == 2
    clock.now += 59.9
    await ask(served)
    assert served.functions.calls["Authorize"] == 2
    clock.now += 0.1
    await ask(served)
    assert served.functions.calls["Authorize"] == 3


async def test_no_answer_is_kept_when_the_ttl_is_zero(serve: ServeFront) -> None:
    served = await guarded(serve, lambda event: policy(), ttl_s=0)
    for _ in range(3):
        assert (await ask(served)).status_code == 200
    assert served.functions.calls["Authorize"] == 3


async def test_an_authorizer_without_identity_headers_is_asked_each_time_and_sees_the_query(
    serve: ServeFront,
) -> None:
    def authorize(event: dict[str, Any]) -> object:
        good = event["queryStringParameters"].get("token") == "t"
        return policy() if good else error_result("Unauthorized")

    anybody = AuthorizerSpec("Key", "Authorize", (), 0)
    served = await serve(*ROUTES, authorizers=[anybody], Authorize=authorize)
    answers = [await served.client.get(f"/jobs/7{query}") for query in ("", "?token=t", "?token=u")]
    assert [answer.status_code for answer in answers] == [401, 200, 401]
    assert served.functions.calls == {"Authorize": 3, "Echo": 1}
    assert served.functions.last("Authorize")["pathParameters"] == {"job_id": "7"}


async def test_requests_that_wait_for_one_key_share_one_call(serve: ServeFront) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def authorize(event: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        await go.wait()
        return policy()

    served = await guarded(serve, authorize)
    requests = [asyncio.create_task(ask(served)) for _ in range(5)]
    await asyncio.wait_for(asked.wait(), 5)
    go.set()
    assert [answer.status_code for answer in await asyncio.gather(*requests)] == [200] * 5
    assert served.functions.calls == {"Authorize": 1, "Echo": 5}


async def test_a_cached_policy_is_evaluated_for_each_request(serve: ServeFront) -> None:
    served = await guarded(serve, lambda event: policy(resource=event["methodArn"]))
    assert (await ask(served)).status_code == 200
    refused = await ask(served, method="POST")
    assert refusal(refused)[0] == 403
    assert served.functions.calls == {"Authorize": 1, "Echo": 1}


async def test_deny_is_403_and_kept(serve: ServeFront) -> None:
    served = await guarded(serve, lambda event: policy("Deny"))
    message = "User is not authorized to access this resource with an explicit deny"
    for _ in range(2):
        assert refusal(await ask(served)) == (403, "AccessDeniedException", message)
    assert served.functions.calls == {"Authorize": 1}


async def test_a_policy_that_is_silent_denies(serve: ServeFront) -> None:
    served = await guarded(serve, lambda event: policy(Action="execute-api:ManageConnections"))
    message = "User is not authorized to access this resource"
    assert refusal(await ask(served)) == (403, "AccessDeniedException", message)


@pytest.mark.parametrize(
    ("resource", "allowed"),
    [
        ("*", True),
        ("arn:aws:execute-api:*:*:*/v1/GET/jobs", True),
        ("arn:aws:execute-api:*:*:*/v?/*/j*", True),
        (f"arn:aws:execute-api:{REGION}:{ACCOUNT}:*", True),
        (["arn:aws:execute-api:*/POST/jobs", "arn:aws:execute-api:*/GET/jobs"], True),
        ("arn:aws:execute-api:*/POST/jobs", False),
        ("arn:aws:execute-api:*/GET/job", False),
        ("arn:aws:execute-api:*/GET/jobs?", False),
        ("arn:aws:execute-api:*/get/jobs", False),
        ("ARN", False),
    ],
)
async def test_resources_match_by_wildcard(
    serve: ServeFront, resource: str | list[str], allowed: bool
) -> None:
    served = await guarded(serve, lambda event: policy(resource=resource))
    assert (await ask(served)).status_code == (200 if allowed else 403)


async def test_a_denial_wins_over_a_permission(serve: ServeFront) -> None:
    answer = policy()
    statements = answer["policyDocument"]["Statement"]
    answer["policyDocument"]["Statement"] = [*statements, *policy("Deny")["policyDocument"]["Statement"]]
    served = await guarded(serve, lambda event: answer)
    assert (await ask(served)).status_code == 403


async def test_unauthorized_is_401_and_asked_again(serve: ServeFront) -> None:
    served = await guarded(serve, lambda event: error_result("Unauthorized"))
    for _ in range(2):
        assert refusal(await ask(served)) == (401, "UnauthorizedException", "Unauthorized")
    assert served.functions.calls == {"Authorize": 2}


def raising(error: Exception) -> Handler:
    def handler(event: dict[str, Any]) -> object:
        raise error

    return handler


FAILURES: Mapping[str, Handler] = {
    "raised": lambda event: error_result("boom", "ValueError"),
    "raised another word": lambda event: error_result("unauthorized"),
    "no error document": lambda event: InvokeResult(b"not JSON", function_error="Unhandled"),
    "throttled": raising(Throttled()),
    "connection lost": raising(OSError("gone")),
    "host stopped": raising(RuntimeError("stopped")),
    "time-out": raising(TimeoutError()),
}


@pytest.mark.parametrize("authorize", FAILURES.values(), ids=FAILURES)
async def test_an_authorizer_that_fails_is_500_and_asked_again(serve: ServeFront, authorize: Handler) -> None:
    served = await guarded(serve, authorize)
    for _ in range(2):
        assert refusal(await ask(served)) == (500, "AuthorizerFailureException", None)
    assert served.functions.calls == {"Authorize": 2}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "Allow",
        [],
        {},
        {"principalId": "someone"},
        {"principalId": "someone", "policyDocument": {"Statement": []}},
        {"principalId": "someone", "policyDocument": {"Statement": ["Allow"]}},
        policy("Perhaps"),
        policy(principal=None),
        policy(principal=""),
        policy(principal=7),
        policy(resource=[]),
        policy(Action=None),
        policy(Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}),
        policy(NotResource="*"),
        policy(NotAction="execute-api:Invoke"),
        policy(context="gold"),
        policy(context={"tier": {"name": "gold"}}),
        policy(context={"scopes": ["read"]}),
        policy(context={"weight": float("nan")}),
    ],
)
async def test_an_answer_that_is_no_policy_is_a_configuration_error(
    serve: ServeFront, answer: object
) -> None:
    served = await guarded(serve, lambda event: answer)
    assert refusal(await ask(served)) == (500, "AuthorizerConfigurationException", None)
    assert served.functions.calls == {"Authorize": 1}


async def test_an_authorizer_that_does_not_exist_is_a_configuration_error(serve: ServeFront) -> None:
    served = await serve(*ROUTES, authorizers=[key_authorizer()])
    assert refusal(await ask(served)) == (500, "AuthorizerConfigurationException", None)


async def test_context_values_reach_the_function_as_strings(serve: ServeFront) -> None:
    context = {"tier": "gold", "n": 7, "ratio": 0.5, "yes": True, "no": False, "none": None, "empty": ""}
    served = await guarded(serve, lambda event: policy(context=context))
    for _ in range(2):
        authorizer = (await ask(served)).json()["requestContext"]["authorizer"]
        authorizer.pop("integrationLatency")
        expected = {"tier": "gold", "n": "7", "ratio": "0.5", "yes": "true", "no": "false", "empty": ""}
        assert authorizer == {"principalId": "someone", **expected}


async def test_a_statement_may_be_no_list_and_actions_have_no_case(serve: ServeFront) -> None:
    answer = policy(Action=["EXECUTE-API:*"])
    answer["policyDocument"]["Statement"] = answer["policyDocument"]["Statement"][0]
    served = await guarded(serve, lambda event: answer)
    assert (await ask(served)).status_code == 200


async def test_a_client_that_leaves_does_not_end_the_call_that_others_wait_for(serve: ServeFront) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def authorize(event: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        await go.wait()
        return policy()

    served = await guarded(serve, authorize)
    first = asyncio.create_task(ask(served))
    await asyncio.wait_for(asked.wait(), 5)
    second = asyncio.create_task(ask(served))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    go.set()
    assert (await second).status_code == 200
    assert served.functions.calls["Authorize"] == 1

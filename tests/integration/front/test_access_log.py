from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local.front.server import FrontOptions
from tests.integration.front.harness import (
    KEY,
    ServeFront,
    error_result,
    key_authorizer,
    policy,
    route,
)

WALL = FrontOptions(wall_clock=lambda: 1_700_000_000.25)
GUARDED = route("GET", "/jobs/{job_id}", authorizer="Key")


async def test_each_request_is_one_object(serve: ServeFront) -> None:
    lines: list[dict[str, Any]] = []
    served = await serve(
        GUARDED,
        authorizers=[key_authorizer()],
        access_log=lines.append,
        options=WALL,
        Authorize=lambda event: policy(),
    )
    answer = await served.client.get("/jobs/7?a=1", headers={"X-API-Key": KEY})
    (line,) = lines
    assert int(line.pop("responseLatency")) >= int(line.pop("integrationLatency")) >= 0
    assert line == {
        "requestId": answer.headers["x-amzn-RequestId"],
        "ip": "127.0.0.1",
        "requestTime": "14/Nov/2023:22:13:20 +0000",
        "httpMethod": "GET",
        "path": "/v1/jobs/7",
        "resourcePath": "/jobs/{job_id}",
        "protocol": "HTTP/1.1",
        "status": "200",
        "responseLength": str(len(answer.content)),
        "integrationStatus": "200",
        "error.responseType": "-",
        "authorizer.principalId": "someone",
    }


async def test_the_templates_format_is_filled_in(serve: ServeFront) -> None:
    lines: list[dict[str, Any]] = []
    log_format = {
        "id": "$context.requestId",
        "what": "$context.httpMethod $context.resourcePath -> $context.status",
        "who": {"tier": "$context.authorizer.tier", "nobody": "$context.authorizer.other"},
        "list": ["$context.stage", 7, None, True],
        "error": "$context.error.messageString",
        "agent": "$context.identity.userAgent",
        "fixed": "no variable",
        "unknown": "$context.unheard.of",
    }
    served = await serve(
        GUARDED,
        authorizers=[key_authorizer()],
        access_log=lines.append,
        access_log_format=json.dumps(log_format),
        Authorize=lambda event: policy(context={"tier": 'go"ld'}),
    )
    headers = {"X-API-Key": KEY, "User-Agent": 'a "quoted" agent\\'}
    answer = await served.client.get("/jobs/7", headers=headers)
    assert lines == [
        {
            "id": answer.headers["x-amzn-RequestId"],
            "what": "GET /jobs/{job_id} -> 200",
            "who": {"tier": 'go"ld', "nobody": "-"},
            "list": ["v1", 7, None, True],
            "error": "null",
            "agent": 'a "quoted" agent\\',
            "fixed": "no variable",
            "unknown": "-",
        }
    ]


async def test_refusals_are_logged_with_their_type_and_reason(serve: ServeFront) -> None:
    lines: list[dict[str, Any]] = []
    log_format = {
        "status": "$context.status",
        "type": "$context.error.responseType",
        "message": "$context.error.message",
        "authorizer": "$context.authorizer.status",
        "integration": "$context.integrationErrorMessage",
    }
    served = await serve(
        GUARDED,
        route("GET", "/broken", "Broken"),
        authorizers=[key_authorizer()],
        access_log=lines.append,
        access_log_format=json.dumps(log_format),
        Authorize=lambda event: policy("Deny"),
        Broken=lambda event: error_result("boom"),
    )
    await served.client.get("/lost")
    await served.client.get("/jobs/7")
    await served.client.get("/jobs/7", headers={"X-API-Key": KEY})
    await served.client.get("/broken")
    seen = [(line["status"], line["type"], line["authorizer"], line["integration"]) for line in lines]
    assert seen == [
        ("403", "MISSING_AUTHENTICATION_TOKEN", "-", "-"),
        ("401", "UNAUTHORIZED", "-", "-"),
        ("403", "ACCESS_DENIED", "403", "-"),
        ("502", "DEFAULT_5XX", "-", "function error: Unhandled"),
    ]
    assert lines[0]["message"] == "Missing Authentication Token"


async def test_a_format_that_is_json_only_when_filled_in_is_filled_in(serve: ServeFront) -> None:
    lines: list[dict[str, Any]] = []
    served = await serve(
        route("GET", "/"),
        access_log=lines.append,
        access_log_format='{"status":$context.status,"error":$context.error.messageString}',
    )
    await served.client.get("/lost")
    assert lines == [{"status": 403, "error": "Missing Authentication Token"}]


@pytest.mark.parametrize("log_format", ["$context.httpMethod $context.status", '"$context.status"'])
async def test_a_format_that_is_no_object_becomes_a_message(serve: ServeFront, log_format: str) -> None:
    lines: list[dict[str, Any]] = []
    served = await serve(route("GET", "/"), access_log=lines.append, access_log_format=log_format)
    await served.client.get("/")
    expected = log_format.replace("$context.httpMethod", "GET").replace("$context.status", "200")
    assert lines == [{"message": expected}]


async def test_a_file_gets_a_line_for_each_request_and_keeps_what_it_had(
    serve: ServeFront, tmp_path: Path
) -> None:
    path = tmp_path / "new" / "access.log"
    path.parent.mkdir()
    path.write_text('{"earlier":1}\n')
    served = await serve(route("GET", "/"), access_log=path, access_log_format='{"s":"$context.status"}')
    await served.client.get("/")
    await served.client.get("/lost")
    assert path.read_text() == '{"earlier":1}\n{"s":"200"}\n{"s":"403"}\n'


async def test_the_folder_of_the_file_is_made(serve: ServeFront, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "access.log"
    served = await serve(route("GET", "/"), access_log=path)
    await served.client.get("/")
    assert json.loads(path.read_text())["status"] == "200"


@pytest.mark.shows("S19")
@pytest.mark.parametrize("log_format", [None, '{"all":"$context.requestId $context.authorizer.principalId"}'])
async def test_no_key_reaches_the_log(serve: ServeFront, tmp_path: Path, log_format: str | None) -> None:
    path = tmp_path / "access.log"
    served = await serve(
        GUARDED,
        authorizers=[key_authorizer()],
        access_log=path,
        access_log_format=log_format,
        Authorize=lambda event: policy(),
    )
    assert (await served.client.get("/jobs/7", headers={"X-API-Key": KEY})).status_code == 200
    assert (await served.client.get(f"/jobs/7?api_key={KEY}", headers={"X-API-Key": KEY})).status_code == 200
    assert (await served.client.get("/lost", headers={"X-API-Key": KEY})).status_code == 403
    assert len(path.read_text().splitlines()) == 3
    assert KEY not in path.read_text()


async def test_broken_http_is_logged_too(serve: ServeFront) -> None:
    lines: list[dict[str, Any]] = []
    served = await serve(route("GET", "/"), access_log=lines.append)
    await served.raw(b"not http at all\r\n\r\n")
    assert [(line["status"], line["error.responseType"]) for line in lines] == [("400", "DEFAULT_4XX")]

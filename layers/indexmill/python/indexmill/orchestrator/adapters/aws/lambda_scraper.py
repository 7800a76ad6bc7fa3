"""The Scraper's API as a Lambda function that is invoked without the gateway."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError
from indexmill.contracts.http_scraper import ScrapeResult
from indexmill.contracts.identity import CallerContext, Doubt
from indexmill.platform.aws.clients import LazyClient

_PATH: Final = "/scraper/scrape"
_OK: Final = 200
_LONGEST_S: Final = 60.0
"""More than a gateway waits: a second try would fetch the page again."""


class LambdaScraper:
    """scraper/api, asked as the gateway would ask it for the caller."""

    def __init__(self, function: str, lambda_: Any | None = None) -> None:
        """`function` is its name or ARN; the client is made on first use."""
        self._function = function
        self._lambda = lambda_ or LazyClient("lambda", read_timeout_s=_LONGEST_S)

    def scrape(
        self, ctx: CallerContext, url: str, request_id: str, accept: Sequence[Doubt] | None = None
    ) -> ScrapeResult:
        """Return the page. Raises IndexmillError with the code of the answer."""
        event = _event(ctx, {"url": url, **({"accept": list(accept)} if accept else {})}, request_id)
        try:
            answer = self._lambda.invoke(FunctionName=self._function, Payload=json.dumps(event).encode())
            reply = json.loads(answer["Payload"].read())
            body = json.loads(reply["body"])
            if reply["statusCode"] == _OK:
                return ScrapeResult.model_validate(body)
        except (BotoCoreError, ClientError, ValueError, KeyError) as error:
            raise TransientError(ErrorCode.UPSTREAM_ERROR, "The Scraper cannot be asked.") from error
        said = body.get("error", {})
        raise IndexmillError(said.get("code", ErrorCode.UPSTREAM_ERROR), said.get("message", ""))


def _event(ctx: CallerContext, body: Mapping[str, Any], request_id: str) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "X-Request-Id": request_id}
    authorizer = {
        "caller_id": ctx.caller_id,
        "caller_type": ctx.caller_type,
        "internal": str(ctx.internal).lower(),
    }
    authorizer |= {"tier": ctx.tier} if ctx.tier else {}
    if limits := ctx.raw_claims.get("rate_limits"):
        authorizer["rate_limits"] = json.dumps(limits)
    return {
        "resource": _PATH,
        "path": _PATH,
        "httpMethod": "POST",
        "headers": headers,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": None,
        "multiValueQueryStringParameters": None,
        "pathParameters": None,
        "requestContext": {
            "requestId": request_id,
            "path": _PATH,
            "httpMethod": "POST",
            "authorizer": authorizer,
        },
        "body": json.dumps(body),
        "isBase64Encoded": False,
    }

"""Settings that are secrets: a literal on a laptop, a Secrets Manager ARN on AWS."""

from __future__ import annotations

from functools import lru_cache

from indexmill.contracts.errors import Defect


def resolve(literal: str | None, arn: str | None) -> str:
    """Return `literal` when there is one, else the secret string behind `arn`.

    Raises Defect when neither is set.
    """
    if literal:
        return literal
    if not arn:
        raise Defect("neither the literal nor the secret's ARN is set")
    return _fetch(arn)


@lru_cache(maxsize=8)
def _fetch(arn: str) -> str:
    # Only a function on AWS comes here: on a laptop the import would cost every cold start.
    from indexmill.platform.aws.clients import client

    value: str = client("secretsmanager").get_secret_value(SecretId=arn)["SecretString"]
    return value

"""Typed settings: one class per function, read from its environment once, at cold start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict

from indexmill.contracts.identity import FREE, Quota
from indexmill.platform.observability import set_up_root


class FunctionSettings(BaseModel):
    """Base of every function's settings: field `scrape_queue_url` is the variable `SCRAPE_QUEUE_URL`.

    `function` is the logical id in template.yaml; a test compares the fields with the variables set there.
    A field that ends in `_secret_arn` is the Secrets Manager form of the field without that ending: the
    template sets the ARN on AWS, and on a laptop the literal wins.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    function: ClassVar[str]

    log_level: str = "INFO"
    stage: str = "dev"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read and validate; raises pydantic's ValidationError naming what is missing or wrong."""
        if environ is None:
            # A function starts here, and reads secrets before it makes its Observability.
            set_up_root()
            environ = os.environ
        found = {name: environ[name.upper()] for name in cls.model_fields if environ.get(name.upper())}
        return cls.model_validate(found)


class HttpSettings(FunctionSettings):
    """Settings of every function behind the API."""

    allowed_origins: str = ""
    """Comma-separated origins whose pages may read the answers."""
    integration_timeout_seconds: float = 29.0
    """After which the gateway answers by itself."""


def csv(value: str) -> tuple[str, ...]:
    """Split a comma-separated setting; blanks are dropped."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


QuotaText = Annotated[Quota, BeforeValidator(Quota.parse)]


class QuotaSettings(FunctionSettings):
    """Quotas of the tiers; only the template sets their values."""

    quota_free: QuotaText
    quota_pro: QuotaText
    quota_enterprise: QuotaText

    @property
    def quotas(self) -> Mapping[str, Quota]:
        """Return the quotas by tier."""
        return {FREE: self.quota_free, "pro": self.quota_pro, "enterprise": self.quota_enterprise}

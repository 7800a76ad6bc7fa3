"""The functions of a running stack, as the Lambda host knows them, for looks at one function alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from local.compute.environment_variables import EnvironmentFactory
from local.stack.runtime import with_secrets
from local.template.spec import FunctionSpec
from local.template.template import Template
from local.template.translation import translate
from tests.perf.stack_under_test import REPOSITORY


def functions_of(info: Mapping[str, Any]) -> list[FunctionSpec]:
    """All functions with their variables, working against the stack that `info` describes."""
    region, account = info["region"], info["account_id"]
    source = REPOSITORY / "template.yaml"
    translated, parameters = translate(source, {}, info["parameters"], region)
    template = Template(translated, parameters, folder=REPOSITORY, region=region, account_id=account)
    ids: dict[str, str] = info["resources"]
    # Functions get ids of resources; the kind in an ARN does not matter here.
    arns = {name: f"arn:aws:sqs:{region}:{account}:{value.rpartition('/')[2]}" for name, value in ids.items()}
    around = {
        "AWS_ENDPOINT_URL": info["aws_endpoint"],
        "AWS_ENDPOINT_URL_LAMBDA": info["invoke_endpoint"],
    }
    literals = {
        "DATABASE_URL": info["database_url"],
        "STREAM_TOKEN_KEY": "thirty-two bytes for measurements",
    }
    found = (with_secrets(spec, literals) for spec in template.cloud(ids, arns).functions)
    return [replace(spec, environment={**spec.environment, **around}) for spec in found]


def factory_of(info: Mapping[str, Any]) -> EnvironmentFactory:
    """Return the factory of functions' launch requests."""
    return EnvironmentFactory(info["region"], info["account_id"])

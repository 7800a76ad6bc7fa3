"""E9008: what is reserved for functions leaves the account enough for all others."""

from __future__ import annotations

from cfnlint.rules import CloudFormationLintRule, RuleMatch
from cfnlint.template import Template

from stack.rules._source import Source, number

ACCOUNT = "AccountConcurrency"
"""The parameter that says what the account has."""
LAMBDA_QUOTA = 1000
"""Where the template has no such parameter."""
UNRESERVED = 100
"""Executions that Lambda keeps for functions without a reservation."""


class Reservations(CloudFormationLintRule):
    """The reservations of a parameter set, with UNRESERVED, are within AccountConcurrency."""

    id = "E9008"
    shortdesc = "Reserved executions fit the account"
    description = (
        "Lambda refuses a reservation that leaves less than 100 executions, in the middle of a deployment"
    )
    tags = ["lambda"]  # noqa: RUF012

    def match(self, cfn: Template) -> list[RuleMatch]:
        """Return the parameter sets that reserve more than the account has."""
        source = Source(cfn.filename)
        found = []
        for name, parameters in source.parameter_sets().items():
            together = reserved(source, parameters)
            account = number(parameters.get(ACCOUNT), parameters, LAMBDA_QUOTA)
            if together and (account is None or together + UNRESERVED > account):
                message = (
                    f"{together} executions are reserved with {name}, and Lambda keeps {UNRESERVED} free:"
                    f" {ACCOUNT} is {account}"
                )
                found.append(source.match(["Resources"], message))
        return found


def reserved(source: Source, parameters: dict[str, str]) -> int:
    """Return how many executions are reserved with these parameters, for all functions together."""
    return sum(
        number(source.chosen(given, parameters), parameters, 0) or 0
        for function in source.resources("AWS::Serverless::Function")
        if (given := source.function_property(function, "ReservedConcurrentExecutions")) is not None
    )

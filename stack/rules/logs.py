"""E9006: logs end some day, and no log group comes into being by itself."""

from __future__ import annotations

from cfnlint.rules import CloudFormationLintRule, RuleMatch
from cfnlint.template import Template

from stack.rules._source import Source, target


class LogRetention(CloudFormationLintRule):
    """Log groups have a retention, and each function writes into a group of the template."""

    id = "E9006"
    shortdesc = "Logs have a retention"
    description = "A group that Lambda makes by itself keeps its lines for ever"
    tags = ["logs"]  # noqa: RUF012

    def match(self, cfn: Template) -> list[RuleMatch]:
        """Return the groups without retention and the functions without a group."""
        source = Source(cfn.filename)
        groups = source.resources("AWS::Logs::LogGroup")
        found = [
            source.match(["Resources", name], f"{name} needs RetentionInDays")
            for name, body in groups.items()
            if "RetentionInDays" not in body
        ]
        for name in source.resources("AWS::Serverless::Function"):
            logging = source.function_property(name, "LoggingConfig") or {}
            if target(logging.get("LogGroup")) not in groups:
                found.append(
                    source.match(["Resources", name], f"{name} needs LoggingConfig.LogGroup of this template")
                )
        return found

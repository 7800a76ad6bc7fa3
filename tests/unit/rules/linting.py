"""Run the real cfn-lint with our rules, and ours only, over a small template."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

from tests.support.repository import ROOT

if TYPE_CHECKING:
    from cfnlint.rules import Rules  # takes seconds: not in each worker of a test run

HEAD = """\
Transform: AWS::Serverless-2016-10-31
Globals:
  Function:
    Runtime: python3.13
"""
WORKER = """\
  Worker:
    Type: AWS::Serverless::Function
    Properties:
      Handler: app.handler
      CodeUri: .
      Timeout: !Ref WorkTimeout
      {extra}
      LoggingConfig: {{LogGroup: !Ref Logs}}
      Events:
        Tasks:
          Type: SQS
          Properties: {{Queue: !GetAtt Work.Arn{scaling}}}
"""
RESOURCES = """\
Parameters:
  WorkTimeout: {Type: Number, Default: 60}
  WorkVisibility: {Type: Number, Default: 360}
Resources:
  Logs:
    Type: AWS::Logs::LogGroup
    Properties: {RetentionInDays: 30}
  Work:
    Type: AWS::SQS::Queue
    Properties:
      VisibilityTimeout: !Ref WorkVisibility
      MessageRetentionPeriod: 1209600
      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 5}
  Dead:
    Type: AWS::SQS::Queue
    Properties: {MessageRetentionPeriod: 1209600}
"""
SCALING = ", ScalingConfig: {MaximumConcurrency: 5}"


def good_template(extra: str = "", scaling: str = SCALING) -> str:
    """Return a template that every rule accepts, but for what the caller puts in."""
    return HEAD + RESOURCES + WORKER.format(extra=extra, scaling=scaling)


def role(statement: str) -> str:
    """Return a template with one role that has one statement."""
    policy = f"{{PolicyName: own, PolicyDocument: {{Version: '2012-10-17', Statement: [{statement}]}}}}"
    trust = (
        "{Version: '2012-10-17', Statement: [{Effect: Allow, Action: 'sts:AssumeRole', "
        "Principal: {Service: lambda.amazonaws.com}}]}"
    )
    return dedent(f"""\
        Resources:
          Role:
            Type: AWS::IAM::Role
            Properties:
              AssumeRolePolicyDocument: {trust}
              Policies: [{policy}]
        """)


@cache
def our_rules() -> Rules:
    """Return the rules of stack/rules: cfn-lint's own would take most of each run."""
    from cfnlint.rules import Rules

    return Rules.create_from_directory(str(ROOT / "stack" / "rules"))


def findings(folder: Path, template: str, samconfig: str | None = None) -> list[tuple[str, int]]:
    """Return (rule, line) of everything our rules find."""
    from cfnlint.config import ConfigMixIn
    from cfnlint.runner import run_template_by_file_path

    path = folder / "template.yaml"
    path.write_text(template, encoding="utf-8")
    if samconfig:
        (folder / "samconfig.toml").write_text(samconfig, encoding="utf-8")
    config = ConfigMixIn(["--regions", "eu-west-1", "--", str(path)])
    matches = list(run_template_by_file_path(str(path), config, our_rules(), ignore_bad_template=False))
    broken = [match for match in matches if match.rule.id.startswith("E0")]
    assert not broken, broken
    return [(match.rule.id, match.linenumber) for match in matches if match.rule.id.startswith("E900")]

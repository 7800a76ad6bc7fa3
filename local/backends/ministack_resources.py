"""Creation of the stateful resources of a translated template by CloudFormation."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boto3 import Session
    from mypy_boto3_dynamodb import DynamoDBClient

STATEFUL_TYPES = frozenset(
    {
        "AWS::SQS::Queue",
        "AWS::S3::Bucket",
        "AWS::DynamoDB::Table",
        "AWS::SecretsManager::Secret",
        "AWS::SSM::Parameter",
        "AWS::KMS::Key",
        "AWS::KMS::Alias",
    }
)
_WITH_ARN = STATEFUL_TYPES - {"AWS::SecretsManager::Secret", "AWS::SSM::Parameter", "AWS::KMS::Alias"}
STACK_LIMIT_S = 60.0


class StackFailed(RuntimeError):
    """Raised when CloudFormation cannot create or update the stack; its text names resources and reasons."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of the stack, by logical id."""

    ids: Mapping[str, str]
    """Physical ids, as `Ref` gives them: queue URL, bucket name, table name, secret ARN."""
    arns: Mapping[str, str]
    """ARNs of those that have one."""


def stateful_part(template: Mapping[str, Any], types: frozenset[str] = STATEFUL_TYPES) -> dict[str, Any]:
    """Return a template of the resources of `types`, with outputs for their ids and ARNs.

    Raises ValueError when one of them refers to a resource that is left out.
    """
    every = template.get("Resources", {})
    kept = {name: dict(body) for name, body in every.items() if body["Type"] in types}
    left_out = set(every) - set(kept)
    for name, body in kept.items():
        needs = body.pop("DependsOn", ())
        needs = [n for n in ([needs] if isinstance(needs, str) else needs) if n in kept]
        if needs:
            body["DependsOn"] = needs
        if dangling := left_out.intersection(_references(body)):
            raise ValueError(
                f"{name} refers to {', '.join(sorted(dangling))}, which the laptop does not create"
            )
    part = {k: template[k] for k in ("Parameters", "Mappings", "Conditions") if template.get(k)}
    return {"AWSTemplateFormatVersion": "2010-09-09", **part, "Resources": kept, "Outputs": _outputs(kept)}


def _outputs(resources: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    for name, body in resources.items():
        when = {"Condition": body["Condition"]} if "Condition" in body else {}
        outputs[f"Id0{name}"] = {"Value": {"Ref": name}, **when}
        if body["Type"] in _WITH_ARN:
            outputs[f"Arn0{name}"] = {"Value": {"Fn::GetAtt": [name, "Arn"]}, **when}
    return outputs


def _references(node: Any) -> Iterator[str]:
    """Yield every name in a Ref, GetAtt or Sub below `node`."""
    if isinstance(node, list):
        for item in node:
            yield from _references(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "Ref":
                yield str(value)
            elif key == "Fn::GetAtt":
                yield (value if isinstance(value, str) else value[0]).split(".")[0]
            elif key == "Fn::Sub":
                text = value if isinstance(value, str) else value[0]
                yield from (part.split("}")[0].split(".")[0] for part in text.split("${")[1:])
            yield from _references(value)


def create_resources(
    endpoint: str,
    template: Mapping[str, Any],
    *,
    region: str = "us-east-1",
    stack: str = "indexmill",
    parameters: Mapping[str, str] | None = None,
) -> Resources:
    """Create or update the stateful part of `template` at `endpoint`; blocks until CloudFormation is done.

    Parameters that the template lacks are ignored. Raises StackFailed, and ValueError as `stateful_part`
    does.
    """
    opened = session(region)
    client: Any = opened.client("cloudformation", endpoint_url=endpoint)
    body = json.dumps(stateful_part(template))
    given = [{"ParameterKey": k, "ParameterValue": v} for k, v in (parameters or {}).items()]
    known = template.get("Parameters", {})
    given = [item for item in given if item["ParameterKey"] in known]
    try:
        client.create_stack(StackName=stack, TemplateBody=body, Parameters=given)
    except client.exceptions.AlreadyExistsException:
        _update(client, stack, body, given)
    outputs = _outputs_when_complete(client, stack)
    ids = {k[3:]: v for k, v in outputs.items() if k.startswith("Id0")}
    arns = {k[4:]: v for k, v in outputs.items() if k.startswith("Arn0")}
    for name, physical in ids.items():
        resource = template["Resources"][name]
        if resource["Type"] == "AWS::SecretsManager::Secret":
            # On AWS a secret's Ref is its ARN; MiniStack gives its name.
            secrets = opened.client("secretsmanager", endpoint_url=endpoint)
            ids[name] = arns[name] = secrets.describe_secret(SecretId=physical)["ARN"]
        elif expiry := resource.get("Properties", {}).get("TimeToLiveSpecification"):
            _switch_expiry_on(opened.client("dynamodb", endpoint_url=endpoint), physical, expiry)
    return Resources(ids, arns)


def session(region: str) -> Session:
    """Return a session with the credentials of the local cloud."""
    import boto3

    return boto3.Session(aws_access_key_id="local", aws_secret_access_key="local", region_name=region)


def put_secret(secrets: Any, name: str, text: str) -> str:
    """Create or update the secret `name` by a client of Secrets Manager; returns its ARN."""
    try:
        return str(secrets.create_secret(Name=name, SecretString=text)["ARN"])
    except secrets.exceptions.ResourceExistsException:
        return str(secrets.put_secret_value(SecretId=name, SecretString=text)["ARN"])


def _switch_expiry_on(client: DynamoDBClient, table: str, wanted: Mapping[str, Any]) -> None:
    """Enable the expiry of items, which MiniStack's CloudFormation silently leaves out."""
    found = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    if str(wanted.get("Enabled")).lower() == "true" and found.get("TimeToLiveStatus") != "ENABLED":
        expiry = {"AttributeName": wanted["AttributeName"], "Enabled": True}
        client.update_time_to_live(TableName=table, TimeToLiveSpecification=expiry)  # type: ignore[arg-type]


def _update(client: Any, stack: str, body: str, parameters: list[dict[str, str]]) -> None:
    from botocore.exceptions import ClientError

    try:
        client.update_stack(StackName=stack, TemplateBody=body, Parameters=parameters)
    except ClientError as error:
        if "No updates are to be performed" not in str(error):
            raise


def _outputs_when_complete(client: Any, stack: str) -> dict[str, str]:
    deadline = time.monotonic() + STACK_LIMIT_S
    while True:
        found = client.describe_stacks(StackName=stack)["Stacks"][0]
        status = found["StackStatus"]
        if status in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            return {o["OutputKey"]: o["OutputValue"] for o in found.get("Outputs", [])}
        if not status.endswith("IN_PROGRESS") or "ROLLBACK" in status or time.monotonic() > deadline:
            raise StackFailed(f"stack {stack} is {status}: {_reasons(client, stack)}")
        time.sleep(0.05)


def _reasons(client: Any, stack: str) -> str:
    events = client.describe_stack_events(StackName=stack)["StackEvents"]
    failed = [e for e in events if e.get("ResourceStatus", "").endswith("FAILED")]
    return (
        "; ".join(f"{e['LogicalResourceId']}: {e.get('ResourceStatusReason', '')}" for e in failed)
        or "no reason"
    )

"""Translated template.yaml as plain values.

>>> translated, parameters = translate(Path("template.yaml"), {}, {}, "eu-west-1")
>>> template = Template(translated, parameters, folder=Path("."), region="eu-west-1", account_id="0")
>>> resources = create_resources(endpoint, template.stateful())
>>> cloud = template.cloud(resources.ids, resources.arns)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from local.template.event_sources import read_schedule, read_sqs_source, read_subscription
from local.template.intrinsics import Resolver, TemplateError
from local.template.parameters import as_references
from local.template.rest_api import read_api, read_throttles
from local.template.spec import (
    FunctionSpec,
    RestApiSpec,
    ScheduleSpec,
    SqsSourceSpec,
    SubscriptionSpec,
    Throttle,
    WebAclSpec,
    function_name,
    mapping_id,
)
from local.template.translation import SOURCE
from local.template.web_acl import read_web_acl

STACK: Final = "indexmill"
VISIBILITY_FACTOR: Final = 6
"""Least ratio of a queue's visibility timeout to its function's timeout, as AWS recommends."""

_CUSTOM_RESOURCE: Final = "AWS::CloudFormation::CustomResource"
_DIGEST: Final = "ParametersDigest"
"""Attribute of the custom resource that migrates."""
_NAME_PROPERTY: Final = {
    "AWS::SQS::Queue": "QueueName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::KMS::Key": "",  # KMS gives it an id
}


@dataclass(frozen=True, slots=True)
class CloudSpec:
    """All resources that run, resolved."""

    functions: tuple[FunctionSpec, ...]
    api: RestApiSpec | None
    throttles: Mapping[str, Throttle]
    """Throttles of the API, by `"METHOD /path"`, with `"*"` for all others."""
    web_acl: WebAclSpec | None
    binary_media_types: tuple[str, ...]
    sources: tuple[SqsSourceSpec, ...]
    schedules: tuple[ScheduleSpec, ...]
    subscriptions: tuple[SubscriptionSpec, ...]


class Template:
    """Translated template with its parameters' values.

    Args:
        translated: Result of `local.template.translation.translate`, with `parameters`.
        folder: The template's folder, to which the folders of the code are relative.
    """

    def __init__(
        self,
        translated: Mapping[str, Any],
        parameters: Mapping[str, str],
        *,
        folder: Path,
        region: str,
        account_id: str,
    ) -> None:
        self.parameters = parameters
        self._template = translated
        self._folder = folder
        self._region = region
        self._account_id = account_id
        self._pseudo = {
            "AWS::Region": region,
            "AWS::AccountId": account_id,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": STACK,
            "AWS::StackId": f"arn:aws:cloudformation:{region}:{account_id}:stack/{STACK}/local",
        }
        static = self._resolver({}, {}, keep_references=True)
        self._resources = {
            name: body for name, body in translated["Resources"].items() if static.includes(body)
        }
        self._static = static
        self._aliases: dict[str, str] = {
            name: self._properties(name)["FunctionName"]["Ref"]
            for name in self._names_of("AWS::Lambda::Alias")
        }
        """Function by alias, logical ids."""

    def stateful(self) -> dict[str, Any]:
        """Return queues, tables, buckets and keys as a template of their own, with parameters resolved.

        Each but a key has a fixed name, so that functions find it again after the AWS endpoint was restarted.
        """
        kept = {}
        for name, body in self._resources.items():
            if body["Type"] not in _NAME_PROPERTY:
                continue
            properties = self._static.resolve(body.get("Properties", {}))
            default = f"{STACK}-{name}"
            is_bucket = body["Type"] == "AWS::S3::Bucket"
            if named := _NAME_PROPERTY[body["Type"]]:
                properties.setdefault(named, default.lower() if is_bucket else default)
            kept[name] = {"Type": body["Type"], "Properties": properties}
        return {"AWSTemplateFormatVersion": "2010-09-09", "Resources": kept}

    def check_visibility(self) -> None:
        """Raise TemplateError when a queue's visibility timeout is too short for its function."""
        for body in self._of_type("AWS::Lambda::EventSourceMapping"):
            queue = body["Properties"]["EventSourceArn"]["Fn::GetAtt"][0]
            target = self._static.resolve(body["Properties"]["FunctionName"])["Ref"]
            function = self._aliases.get(target, target)
            visibility, parameter = self._visibility(queue)
            timeout = self._timeout(self._properties(function))
            window = int(self._static.resolve(body["Properties"].get("MaximumBatchingWindowInSeconds", 0)))
            least = VISIBILITY_FACTOR * timeout + window
            if visibility < least:
                name = parameter or "its VisibilityTimeout"
                beside = f" and its batching window of {window} s" if window else ""
                raise TemplateError(
                    f"{queue} hides messages for {visibility} s, less than {VISIBILITY_FACTOR} times the "
                    f"{timeout} s of {function}{beside}; raise {name} to {least} or more"
                )

    def cloud(self, ids: Mapping[str, str], arns: Mapping[str, str]) -> CloudSpec:
        """Return all resources that run, given the physical ids and ARNs of the stateful resources."""
        functions = {name: self._name(name) for name in self._names_of("AWS::Lambda::Function")}
        attributes = {f"{name}.Arn": self._function_arn(given) for name, given in functions.items()}
        attributes |= {f"{name}.Arn": arn for name, arn in arns.items()}
        # Each start migrates and begins with the parameters given: nothing here waits for a custom resource.
        attributes |= {f"{name}.{_DIGEST}": "local" for name in self._names_of(_CUSTOM_RESOURCE)}
        names = {name: name for name in self._resources} | functions | dict(ids)
        names |= {
            name: f"{self._function_arn(functions[function])}:{self._properties(name)['Name']}"
            for name, function in self._aliases.items()
        }
        names |= self._mapping_ids(self._resolver(names, attributes))
        resolver = self._resolver(names, attributes)
        # A stage refers to resources that do not exist locally, such as log groups; they are not read here.
        lenient = self._resolver(names, attributes, keep_references=True)
        apis = list(self._names_of("AWS::ApiGateway::RestApi"))
        if len(apis) > 1:
            raise TemplateError(f"one REST API can be served, the template has {', '.join(apis)}")
        api_body = lenient.resolve(self._properties(apis[0])["Body"]) if apis else {}
        stages = [lenient.resolve(body["Properties"]) for body in self._of_type("AWS::ApiGateway::Stage")]
        queues = {arn: name for name, arn in arns.items()}
        return CloudSpec(
            functions=tuple(self._function(name, resolver) for name in functions),
            api=read_api(apis[0], api_body, stages, self._metadata(apis[0])) if apis else None,
            throttles=read_throttles(stages),
            web_acl=self._web_acl(lenient),
            binary_media_types=tuple(api_body.get("x-amazon-apigateway-binary-media-types", ())),
            sources=tuple(
                self._with_visibility(read_sqs_source(name, resolver.resolve(self._properties(name)), queues))
                for name in self._names_of("AWS::Lambda::EventSourceMapping")
            ),
            schedules=tuple(
                schedule
                for name in self._names_of("AWS::Events::Rule")
                for schedule in read_schedule(name, resolver.resolve(self._properties(name)))
            ),
            subscriptions=tuple(
                read_subscription(name, resolver.resolve(self._properties(name)), self._log_writers())
                for name in self._names_of("AWS::Logs::SubscriptionFilter")
            ),
        )

    def _web_acl(self, resolver: Resolver) -> WebAclSpec | None:
        """Return the web ACL of the nested stack that has one, if there is such a stack."""
        for body in self._of_type("AWS::CloudFormation::Stack"):
            path = self._folder / body["Properties"]["TemplateURL"]
            given = resolver.resolve(body["Properties"].get("Parameters", {}))
            if (found := read_web_acl(path, given, self._pseudo)) is not None:
                return found
        return None

    def _log_writers(self) -> dict[str, str]:
        """Return the name of the function that writes into each log group, by the group's logical id."""
        groups = {
            name: self._properties(name).get("LoggingConfig", {}).get("LogGroup", {}).get("Ref")
            for name in self._names_of("AWS::Lambda::Function")
        }
        return {group: self._name(function) for function, group in groups.items() if group}

    def _visibility(self, queue: str) -> tuple[int, str | None]:
        """Return a queue's visibility timeout, and the parameter that sets it if one does."""
        asked = self._properties(queue).get("VisibilityTimeout", 30)
        parameter = asked.get("Ref") if isinstance(asked, dict) else None
        return int(self._static.resolve(asked)), parameter

    def _with_visibility(self, source: SqsSourceSpec) -> SqsSourceSpec:
        seconds, parameter = self._visibility(source.queue)
        return replace(source, visibility_s=seconds, visibility_parameter=parameter)

    def _mapping_ids(self, resolver: Resolver) -> dict[str, str]:
        """Return the values of `Ref` for each event source mapping."""
        ids = {}
        for name in self._names_of("AWS::Lambda::EventSourceMapping"):
            properties = resolver.resolve(self._properties(name))
            function_arn = self._function_arn(function_name(properties["FunctionName"]))
            ids[name] = mapping_id(function_arn, properties["EventSourceArn"])
        return ids

    def _function(self, name: str, resolver: Resolver) -> FunctionSpec:
        raw = self._properties(name)
        layers = [self._properties(layer["Ref"])["Content"] for layer in raw.get("Layers", ())]
        plain = ("Handler", "Runtime", "Environment", "MemorySize", "ReservedConcurrentExecutions")
        own = resolver.resolve({key: raw[key] for key in plain if key in raw})
        reserved = own.get("ReservedConcurrentExecutions")
        logging = raw.get("LoggingConfig", {})
        is_json = logging.get("LogFormat") == "JSON"
        variables = own.get("Environment", {}).get("Variables", {})
        return FunctionSpec(
            logical_id=name,
            name=self._name(name),
            handler=own["Handler"],
            code_dir=self._folder / raw["Code"]["S3Key"],
            # A layer that a makefile builds is the environment that this process runs in.
            layer_dirs=tuple(self._folder / each["S3Key"] for each in layers if each["S3Bucket"] == SOURCE),
            timeout_s=self._timeout(raw),
            memory_mb=int(own.get("MemorySize", 128)),
            environment={key: _text(value) for key, value in variables.items()},
            runtime=own["Runtime"],
            reserved_concurrency=None if reserved is None else int(reserved),
            log_level=str(resolver.resolve(logging.get("ApplicationLogLevel", "INFO"))) if is_json else None,
        )

    def _resolver(
        self, names: Mapping[str, Any], attributes: Mapping[str, str], *, keep_references: bool = False
    ) -> Resolver:
        references = as_references(self._template.get("Parameters", {}), self.parameters)
        return Resolver(
            {**self._pseudo, **names, **references},
            attributes,
            conditions=self._template.get("Conditions"),
            mappings=self._template.get("Mappings"),
            keep_references=keep_references,
        )

    def _timeout(self, function: Mapping[str, Any]) -> int:
        return int(self._static.resolve(function.get("Timeout", 3)))

    def _name(self, function: str) -> str:
        return str(self._static.resolve(self._properties(function).get("FunctionName", function)))

    def _function_arn(self, name: str) -> str:
        return f"arn:aws:lambda:{self._region}:{self._account_id}:function:{name}"

    def _properties(self, name: str) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self._resources[name].get("Properties", {})
        return properties

    def _metadata(self, name: str) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = self._resources[name].get("Metadata", {})
        return metadata

    def _names_of(self, kind: str) -> Iterator[str]:
        return (name for name, body in self._resources.items() if body["Type"] == kind)

    def _of_type(self, kind: str) -> Iterator[Mapping[str, Any]]:
        return (self._resources[name] for name in self._names_of(kind))


def _text(value: Any) -> str:
    """Return a variable's value as Lambda has it: always text."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)

"""Guards of the template: against deployments that fail halfway, and against loops."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from indexmill.contracts.errors import HTTP_STATUS
from indexmill.platform.http.app import SECURITY_HEADERS
from local.template.intrinsics import Resolver
from local.template.parameters import ParameterError, parameter_values
from local.template.translation import translate
from tests.support.data_stack import data_stack, edge_stack
from tests.support.function_env import GIVEN, ROOT, functions, template
from tests.support.roles import permissions

REGION = "eu-west-1"
MOST_METRICS = 10  # that CloudWatch takes in one alarm


@pytest.fixture(scope="module")
def translated() -> Iterator[dict[str, Any]]:
    """Return the resources that CloudFormation is given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        yield translate(ROOT / "template.yaml", GIVEN, {}, REGION)[0]["Resources"]


def referred(value: Any) -> set[str]:
    """Return the logical ids that a value refers to; CloudFormation makes these first."""
    if isinstance(value, list):
        return set().union(*map(referred, value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*map(referred, value.values()))
    if "Ref" in value:
        found.add(str(value["Ref"]))
    if "Fn::GetAtt" in value:
        found.add(str(value["Fn::GetAtt"][0]))
    return found


def test_the_stage_comes_after_the_role_by_which_api_gateway_logs(translated: dict[str, Any]) -> None:
    (stage,) = (each for each in translated.values() if each["Type"] == "AWS::ApiGateway::Stage")
    assert "AccessLogSetting" in stage["Properties"]
    assert "ApiGatewayAccount" in referred(stage["Properties"])
    assert "ApiGatewayAccountLogRole" in referred(translated["ApiGatewayAccount"]["Properties"])


def test_the_regions_log_role_outlives_the_stack_and_can_be_left_alone() -> None:
    condition = {"Fn::Equals": [{"Ref": "ApiGatewayAccountRole"}, "create"]}
    assert template()["Conditions"]["CreatesAccountRole"] == condition
    for name in ("ApiGatewayAccount", "ApiGatewayAccountLogRole"):
        found = template()["Resources"][name]
        assert found["Condition"] == "CreatesAccountRole"
        assert (found["DeletionPolicy"], found["UpdateReplacePolicy"]) == ("Retain", "Retain")


@pytest.mark.shows("S12", "S22", "S36", "S40")
def test_every_answer_of_the_gateway_has_our_shape_and_headers(
    translated: dict[str, Any],
) -> None:
    responses = translated["Api"]["Properties"]["Body"]["x-amazon-apigateway-gateway-responses"]
    assert {"WAF_FILTERED", "UNSUPPORTED_MEDIA_TYPE", "THROTTLED", "DEFAULT_4XX", "DEFAULT_5XX"} <= set(
        responses
    )
    codes = {}
    for name, response in responses.items():
        headers = {
            key.removeprefix("gatewayresponse.header.").lower(): value
            for key, value in response["responseParameters"].items()
        }
        assert headers["x-request-id"] == "context.requestId"
        # Only pages of allowed origins can read it: shown in test_preflight.py.
        assert headers["access-control-allow-origin"]["Fn::If"][0] == "AllowsOrigins"
        assert headers["access-control-expose-headers"]["Fn::If"][0] == "AllowsOrigins"
        assert {key: headers[key].strip("'") for key in SECURITY_HEADERS} == SECURITY_HEADERS
        error = json.loads(response["responseTemplates"]["application/json"])["error"]
        assert error["request_id"] == "$context.requestId"
        assert headers.get("retry-after", "''").strip("'") == str(error.get("retry_after", ""))
        codes[name] = error["code"]
        assert HTTP_STATUS[error["code"]] == int(response.get("statusCode", HTTP_STATUS[error["code"]]))
    assert codes["WAF_FILTERED"] == "request_blocked"
    assert codes["UNSUPPORTED_MEDIA_TYPE"] == "unsupported_media_type"
    assert (codes["BAD_REQUEST_BODY"], codes["DEFAULT_4XX"]) == ("malformed_json", "bad_request")
    assert codes["THROTTLED"] == "gateway_throttled"
    for status, body in translated["Api"]["Metadata"]["EdgeResponses"].items():
        error = json.loads(body)["error"]
        assert error["request_id"] == "$context.requestId"
        assert HTTP_STATUS[error["code"]] == int(status)


@pytest.mark.shows("S17")
def test_every_queue_and_the_bucket_refuse_plain_http_and_other_accounts() -> None:
    resources = template()["Resources"]
    queues = {name for name, found in resources.items() if found["Type"] == "AWS::SQS::Queue"}
    policies = {name: resources[name]["Properties"] for name in ("QueuePolicies", "ContentBucketPolicy")}
    assert {queue["Ref"] for queue in policies["QueuePolicies"]["Queues"]} == queues
    assert policies["ContentBucketPolicy"]["Bucket"] == {"Ref": "ContentBucket"}
    for policy, service in zip(policies.values(), ("sqs", "s3"), strict=True):
        statements = policy["PolicyDocument"]["Statement"]
        assert {(each["Effect"], each["Principal"], each["Action"]) for each in statements} == {
            ("Deny", "*", f"{service}:*")
        }
        assert [each["Condition"] for each in statements] == [
            {"Bool": {"aws:SecureTransport": "false"}},
            {"StringNotEquals": {"aws:PrincipalAccount": {"Ref": "AWS::AccountId"}}},
        ]
    objects = policies["ContentBucketPolicy"]["PolicyDocument"]["Statement"][0]["Resource"]
    assert objects == [{"Fn::GetAtt": ["ContentBucket", "Arn"]}, {"Fn::Sub": "${ContentBucket.Arn}/*"}]


@pytest.mark.shows("S17")
def test_what_is_kept_is_encrypted_and_closed_to_the_public() -> None:
    resources = template()["Resources"]
    for found in resources.values():
        if found["Type"] == "AWS::SQS::Queue":
            assert found["Properties"]["SqsManagedSseEnabled"] is True
    bucket = resources["ContentBucket"]["Properties"]
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    assert bucket["BucketEncryption"]


@pytest.mark.shows("S12")
def test_browsers_upload_from_the_allowed_origins_only() -> None:
    bucket = template()["Resources"]["ContentBucket"]["Properties"]
    condition, allowed, otherwise = bucket["CorsConfiguration"]["Fn::If"]
    assert (condition, otherwise) == ("AllowsOrigins", {"Ref": "AWS::NoValue"})
    (rule,) = allowed["CorsRules"]
    assert rule["AllowedOrigins"] == {"Fn::Split": [",", {"Ref": "AllowedOrigins"}]}
    assert (rule["AllowedMethods"], rule["AllowedHeaders"]) == (
        ["PUT"],
        ["content-type", "x-amz-checksum-sha256"],
    )


def test_every_prefix_of_the_bucket_expires() -> None:
    bucket = template()["Resources"]["ContentBucket"]["Properties"]
    expiring = {
        rule["Prefix"] for rule in bucket["LifecycleConfiguration"]["Rules"] if rule["ExpirationInDays"]
    }
    written = {
        resource.removeprefix("ContentBucket/").removesuffix("*")
        for function in functions()
        for resource, actions in permissions(function, "s3").items()
        if "s3:PutObject" in actions
    }
    assert written <= expiring


@pytest.mark.shows("S17")
@pytest.mark.parametrize("stage", ["Scrape", "Chunk", "Embed", "Callbacks"])
def test_a_dead_letter_queue_takes_messages_of_its_own_queue_only(stage: str) -> None:
    resources = template()["Resources"]
    queue, dead = resources[f"{stage}Queue"], resources[f"{stage}Dlq"]["Properties"]
    assert queue["Properties"]["RedrivePolicy"]["deadLetterTargetArn"] == {
        "Fn::GetAtt": [f"{stage}Dlq", "Arn"]
    }
    assert dead["RedriveAllowPolicy"]["redrivePermission"] == "byQueue"
    (source,) = dead["RedriveAllowPolicy"]["sourceQueueArns"]
    # By name, as a reference would be a cycle; so the name is the same on both sides.
    region_and_account = "${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}"
    assert source["Fn::Sub"] == f"arn:{region_and_account}:{queue['Properties']['QueueName']['Fn::Sub']}"
    # A queue that gets another name is another queue: the old one keeps its messages.
    assert queue["UpdateReplacePolicy"] == "Retain"


def alarm(name: str) -> dict[str, Any]:
    """Return an alarm's properties with its metrics by id."""
    found = dict(template()["Resources"][name]["Properties"])
    return {**found, "Metrics": {each["Id"]: each for each in found["Metrics"]}}


def watched(name: str, metric: str) -> list[str]:
    """Return the functions whose metric an alarm reads."""
    metrics = [
        each["MetricStat"]["Metric"] for each in alarm(name)["Metrics"].values() if "MetricStat" in each
    ]
    return [each["Dimensions"][0]["Value"]["Ref"] for each in metrics if each["MetricName"] == metric]


def test_the_pipelines_functions_may_loop_and_all_others_raise_an_alarm() -> None:
    loop = {name for name, found in functions().items() if found.get("RecursiveLoop") == "Allow"}
    workers = {"ScraperWorker", "ChunkingWorker", "EmbeddingWorker"}
    assert loop == {*workers, "OrchestratorResults", "OrchestratorDeadLetters"}
    # Lambda counts no dropped invocation where it looks for none.
    both = [
        watched(name, "RecursiveInvocationsDropped") for name in ("RequestLoopAlarm", "BackgroundLoopAlarm")
    ]
    assert sorted(both[0] + both[1]) == sorted(functions().keys() - loop)
    assert max(map(len, both)) <= MOST_METRICS
    assert set(watched("PipelineLoopAlarm", "Invocations")) == loop


def test_a_lint_check_is_ignored_in_one_template_and_with_a_reason() -> None:
    assert "ignore_checks" not in (ROOT / ".cfnlintrc").read_text(encoding="utf-8")
    ignored = template()["Metadata"]["cfn-lint"]["config"]["ignore_checks"]
    text = (ROOT / "template.yaml").read_text(encoding="utf-8").split("\nParameters:")[0]
    reasons = re.findall(r"# [^\n]+\n((?: +- \w+\n)+)", text)
    assert [each.strip() for found in reasons for each in found.replace("- ", "").split()] == ignored
    for nested in (data_stack(), edge_stack()):
        assert "cfn-lint" not in nested.get("Metadata", {})


ALARMS = [name for name, body in template()["Resources"].items() if body["Type"] == "AWS::CloudWatch::Alarm"]


@pytest.mark.parametrize("name", ALARMS)
def test_alarms_tell_the_topic_when_there_is_one(name: str) -> None:
    found = alarm(name)
    topic = {"Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    # What is not invoked has no data.
    missing = "breaching" if name == "SweeperSilent" else "notBreaching"
    assert (found["AlarmActions"], found["TreatMissingData"]) == (topic, missing)
    assert sum(each.get("ReturnData", True) for each in found["Metrics"].values()) == 1


ALWAYS = {
    "ApiErrors": "5XXError",
    "DeadLetterAge": "ApproximateAgeOfOldestMessage",
    "CallbackAge": "ApproximateAgeOfOldestMessage",
    "BackgroundErrors": "Errors",
    "SweeperSilent": "Invocations",
    "SweeperErrors": "Errors",
    "IndexBuilderErrors": "Errors",
    "AccountThrottles": "Throttles",
    "AccountExecutions": "ConcurrentExecutions",
}


@pytest.mark.parametrize(("canary", "create"), [("false", "true"), ("true", "true"), ("true", "false")])
def test_alarms_do_not_hang_on_the_canary(canary: str, create: str) -> None:
    resources = template()["Resources"]
    values = {name: str(body.get("Default", "")) for name, body in template()["Parameters"].items()}
    resolver = Resolver(
        {**values, "Canary": canary, "CreateAlarms": create}, conditions=template()["Conditions"]
    )
    made = {name for name in ALARMS if resolver.includes(resources[name])}
    released = {"ApiErrors", "DeadLetterAge", "CallbackAge"}
    assert made & ALWAYS.keys() == (set(ALWAYS) if create == "true" else released)
    for name, metric in ALWAYS.items():
        metrics = [
            each["MetricStat"]["Metric"]
            for each in resources[name]["Properties"]["Metrics"]
            if "MetricStat" in each
        ]
        assert metric in {each["MetricName"] for each in metrics}
        # That of a version, ExecutedVersion, is there while two of them share an alias.
        assert not [each for each in metrics if "ExecutedVersion" in str(each)]


def test_every_function_that_no_caller_waits_for_is_watched() -> None:
    called = {name for name, body in functions().items() if "'Api'" in str(body.get("Events"))}
    deployed = {
        "Authorizer",
        "StreamAuthorizer",
        "Migrator",
    }  # their failures are a 5xx and a failed deployment
    seen = set(watched("BackgroundErrors", "Errors") + watched("SweeperErrors", "Errors"))
    assert seen | set(watched("IndexBuilderErrors", "Errors")) == functions().keys() - called - deployed


@pytest.mark.parametrize(
    ("api", "expected"),
    [("0", {}), ("100", {"OrchestratorResults": "5", "OrchestratorSweeper": 2})],
)
def test_what_callers_reach_is_bounded_and_what_keeps_jobs_going_has_its_own(
    api: str, expected: dict[str, object]
) -> None:
    values = {name: str(body.get("Default", "")) for name, body in template()["Parameters"].items()}
    values |= {"ApiReservedConcurrency": api, "StreamReservedConcurrency": "60"}
    resolver = Resolver(values, conditions=template()["Conditions"])
    reserved = {
        name: resolver.resolve(body["ReservedConcurrentExecutions"])
        for name, body in functions().items()
        if "ReservedConcurrentExecutions" in body
    }
    found = {name: value for name, value in reserved.items() if isinstance(value, str | int)}
    called = {name for name, body in functions().items() if "'Api'" in str(body.get("Events"))}
    assert found.pop("OrchestratorStream") == "60"
    assert found == expected | dict.fromkeys(called - {"OrchestratorStream"} if expected else (), api)


def test_the_default_address_closes_only_behind_a_domain() -> None:
    (assertion,) = template()["Rules"]["TheApiHasAnAddress"]["Assertions"]
    for endpoint, edge, domain, fits in (
        ("open", "none", "", True),
        ("closed", "none", "", False),
        ("closed", "waf", "", False),
        ("closed", "none", "api.acme.org", False),
        ("closed", "waf", "api.acme.org", True),
    ):
        given = {"DefaultEndpoint": endpoint, "Edge": edge, "EdgeDomainName": domain}
        assert Resolver(given).resolve(assertion["Assert"]) is fits
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        made = translate(ROOT / "template.yaml", GIVEN, {}, REGION)[0]["Resources"]["Api"]["Properties"]
    extension = made["Body"]["servers"][0]["x-amazon-apigateway-endpoint-configuration"]
    assert extension["disableExecuteApiEndpoint"] == {"Fn::If": ["ClosesDefaultEndpoint", True, False]}


def test_logs_are_kept_for_a_time_that_cloudwatch_takes() -> None:
    days = template()["Parameters"]["LogRetentionDays"]["AllowedValues"]
    assert days == data_stack()["Parameters"]["LogRetentionDays"]["AllowedValues"]
    assert 30 in days
    assert 45 not in days


def test_what_has_no_usable_default_has_none() -> None:
    """CloudFormation then refuses the change set: nothing has been made yet."""
    declared = template()["Parameters"]
    assert {name for name, body in declared.items() if "Default" not in body} == set(GIVEN)
    with pytest.raises(ParameterError, match="MembershipUrl has no default and needs a value"):
        parameter_values(declared, {"Stage": "dev"})
    assert parameter_values(declared, {"Stage": "dev", **GIVEN})["MembershipUrl"] == GIVEN["MembershipUrl"]


@pytest.mark.parametrize("name", GIVEN)
def test_a_parameter_without_a_default_refuses_the_place_holder(name: str) -> None:
    declared = template()["Parameters"][name]
    assert re.fullmatch(declared["AllowedPattern"], "REPLACE-ME") is None
    assert declared["ConstraintDescription"]


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("MembershipUrl", "https://membership.acme.org/v2", True),
        ("MembershipUrl", "http://membership.acme.org", False),
        ("MembershipUrl", "http://127.0.0.1:8080", True),
        ("MembershipUrl", "http://127.0.0.1.acme.org:80", False),
        ("MembershipUrl", "https://a b", False),
        ("MembershipUrl", "", False),
        ("EmbeddingBaseUrl", "https://api.acme.org/v1", True),
        ("EmbeddingBaseUrl", "http://10.0.3.7:8000/v1", True),
        ("EmbeddingBaseUrl", "ftp://api.acme.org/v1", False),
        ("EmbeddingBaseUrl", "https://api.acme.org/v1?key=1", False),
    ],
)
def test_addresses_of_other_services(name: str, value: str, fits: bool) -> None:
    assert (re.fullmatch(template()["Parameters"][name]["AllowedPattern"], value) is not None) is fits


@pytest.mark.parametrize("seconds", ["6", "29", "300"])
def test_the_gateway_waits_for_a_function_that_ends_just_after(seconds: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        given = {**GIVEN, "IntegrationTimeoutSeconds": seconds}
        made, parameters = translate(ROOT / "template.yaml", given, {}, REGION)
    resolver = Resolver(parameters, mappings=made["Mappings"], keep_references=True)
    operations = [
        each
        for path in made["Resources"]["Api"]["Properties"]["Body"]["paths"].values()
        for method, each in path.items()
        if method != "options"
    ]
    waits = {
        resolver.resolve(each["x-amazon-apigateway-integration"]["timeoutInMillis"]) for each in operations
    }
    assert waits == {int(seconds) * 1000}
    behind = [
        name
        for name, body in functions().items()
        if "Api" in {event["Type"] for event in body.get("Events", {}).values()}
    ]
    limits = {resolver.resolve(made["Resources"][name]["Properties"]["Timeout"]) for name in behind}
    assert limits == {int(seconds) + 1}


def test_every_allowed_limit_of_the_gateway_is_in_the_mapping() -> None:
    allowed = template()["Parameters"]["IntegrationTimeoutSeconds"]["AllowedValues"]
    assert set(template()["Mappings"]["IntegrationTimeouts"]) == set(map(str, allowed))


@pytest.mark.parametrize(("level", "lambdas"), [("WARNING", "WARN"), ("ERROR", "ERROR"), ("DEBUG", "DEBUG")])
def test_the_log_level_reaches_lambdas_filter(level: str, lambdas: str) -> None:
    logging = template()["Globals"]["Function"]["LoggingConfig"]
    assert logging["LogFormat"] == "JSON"
    resolver = Resolver({"LogLevel": level}, mappings=template()["Mappings"])
    assert resolver.resolve(logging["ApplicationLogLevel"]) == lambdas
    assert set(template()["Mappings"]["LogLevels"]) == set(
        template()["Parameters"]["LogLevel"]["AllowedValues"]
    )
    assert all("ApplicationLogLevel" not in body["LoggingConfig"] for body in functions().values())

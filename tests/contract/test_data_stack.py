"""The nested stack of database and network: complete in every choice, closed, backed up, and wired."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from local.template.intrinsics import Resolver
from local.template.parameters import as_references
from tests.support.data_stack import CHOICES, data_stack, of_type, outputs, references, resources
from tests.support.function_env import functions, template, variables

Choice = Mapping[str, str]
IDS = [" ".join(choice.values()) for choice in CHOICES]


@pytest.fixture(params=CHOICES, ids=IDS)
def choice(request: pytest.FixtureRequest) -> Choice:
    found: Choice = request.param
    return found


def test_every_choice_refers_only_to_what_it_makes(choice: Choice) -> None:
    made = resources(choice)
    known = set(made) | set(data_stack()["Parameters"])
    for name, body in made.items():
        missing = {each for each in references(body["Properties"]) if "::" not in each} - known
        assert not missing, name
        after = body.get("DependsOn", [])
        assert {after} <= known if isinstance(after, str) else set(after) <= known
    assert set(references(outputs(choice))) <= known


def test_it_makes_one_encrypted_database_that_is_kept_and_not_public(choice: Choice) -> None:
    made = resources(choice)
    clusters, instances = of_type(made, "AWS::RDS::DBCluster"), of_type(made, "AWS::RDS::DBInstance")
    assert len(instances) == 1
    (database,) = clusters.values() or instances.values()
    assert database["StorageEncrypted"] is True
    assert database["ManageMasterUserPassword"] is True
    assert "MasterUserPassword" not in database
    assert database["DeletionProtection"] == "true"
    assert int(database["BackupRetentionPeriod"]) >= 7
    assert next(iter(instances.values()))["PubliclyAccessible"] is False
    (body,) = [each for each in made.values() if each["Properties"] is database]
    assert (body["DeletionPolicy"], body["UpdateReplacePolicy"]) == ("Snapshot", "Snapshot")


def test_postgres_refuses_connections_without_tls(choice: Choice) -> None:
    made = resources(choice)
    groups = [
        *of_type(made, "AWS::RDS::DBClusterParameterGroup").values(),
        *of_type(made, "AWS::RDS::DBParameterGroup").values(),
    ]
    assert [group["Parameters"]["rds.force_ssl"] for group in groups] == ["1"]
    assert all(proxy["RequireTLS"] is True for proxy in of_type(made, "AWS::RDS::DBProxy").values())


def test_what_the_database_logs_has_no_values_of_statements_and_rows(choice: Choice) -> None:
    kinds = ("AWS::RDS::DBClusterParameterGroup", "AWS::RDS::DBParameterGroup")
    (group,) = (each for kind in kinds for each in of_type(resources(choice), kind).values())
    silent = {
        "log_parameter_max_length": "0",
        "log_parameter_max_length_on_error": "0",
        "log_error_verbosity": "terse",
    }
    assert silent.items() <= group["Parameters"].items()


def test_logs_that_the_database_exports_have_a_retention(choice: Choice) -> None:
    """RDS makes a group that is not there by itself, and keeps its lines indefinitely."""
    made = resources(choice)
    clusters, instances = of_type(made, "AWS::RDS::DBCluster"), of_type(made, "AWS::RDS::DBInstance")
    expected = {
        *(
            f"/aws/rds/cluster/{cluster['DBClusterIdentifier']}/{log}"
            for cluster in clusters.values()
            for log in cluster["EnableCloudwatchLogsExports"]
        ),
        *(
            f"/aws/rds/instance/{instance['DBInstanceIdentifier']}/{log}"
            for instance in instances.values()
            for log in instance.get("EnableCloudwatchLogsExports", ())
        ),
    }
    groups = of_type(made, "AWS::Logs::LogGroup")
    assert expected
    assert {group["LogGroupName"] for group in groups.values()} == expected
    exporting = [body for body in made.values() if "EnableCloudwatchLogsExports" in body["Properties"]]
    assert [body["DependsOn"] for body in exporting] == list(groups)


def test_only_the_functions_and_the_proxy_reach_postgres(choice: Choice) -> None:
    made = resources(choice)
    rules: list[tuple[Any, Any, Any]] = [
        (name, rule["FromPort"], rule.get("SourceSecurityGroupId", {"Ref": "anybody"})["Ref"])
        for name, group in of_type(made, "AWS::EC2::SecurityGroup").items()
        for rule in group.get("SecurityGroupIngress", ())
    ]
    rules += [
        (rule["GroupId"]["Ref"], rule["FromPort"], rule["SourceSecurityGroupId"]["Ref"])
        for rule in of_type(made, "AWS::EC2::SecurityGroupIngress").values()
    ]
    expected = {("PostgresSecurityGroup", 5432, "FunctionsSecurityGroup")}
    if choice["Proxy"] == "true":
        expected.add(("PostgresSecurityGroup", 5432, "PostgresSecurityGroup"))
    if choice["Egress"] == "endpoints":
        expected.add(("EndpointSecurityGroup", 443, "FunctionsSecurityGroup"))
    assert set(rules) == expected


def test_the_functions_reach_aws_and_nothing_reaches_them(choice: Choice) -> None:
    made = resources(choice)
    services = {
        str(endpoint["ServiceName"]).rsplit(".", 1)[1]: endpoint["VpcEndpointType"]
        for endpoint in of_type(made, "AWS::EC2::VPCEndpoint").values()
    }
    free = {"s3": "Gateway", "dynamodb": "Gateway"}
    routes = of_type(made, "AWS::EC2::Route").values()
    ways_out = [route for route in routes if route["RouteTableId"] == {"Ref": "PrivateRoutes"}]
    if choice["Egress"] == "nat":
        assert services == free
        assert [route["NatGatewayId"] for route in ways_out] == [{"Ref": "NatGateway"}]
    else:
        assert services == free | dict.fromkeys(("sqs", "secretsmanager", "lambda", "kms"), "Interface")
        assert not ways_out
    assert not any("GatewayId" in route for route in ways_out)
    assert all(not subnet["MapPublicIpOnLaunch"] for subnet in of_type(made, "AWS::EC2::Subnet").values())


def test_the_proxy_knows_every_login_and_may_read_its_secret(choice: Choice) -> None:
    made = resources(choice)
    given = outputs(choice)
    secrets = [given["OwnerSecretArn"], *({"Ref": name} for name in of_type(made, _SECRET))]
    proxies = of_type(made, "AWS::RDS::DBProxy")
    assert len(proxies) == (choice["Proxy"] == "true")
    for proxy in proxies.values():
        assert [login["SecretArn"] for login in proxy["Auth"]] == secrets
        (policy,) = made["ProxyRole"]["Properties"]["Policies"]
        (statement,) = policy["PolicyDocument"]["Statement"]
        assert statement["Resource"] == secrets
        assert len(of_type(made, "AWS::RDS::DBProxyTargetGroup")) == 1


def test_the_proxy_takes_its_role_without_a_condition(choice: Choice) -> None:
    """AWS's page on the role asks for none; without its role the proxy leaves no function a database."""
    for name, body in of_type(resources(choice), "AWS::IAM::Role").items():
        (trust,) = body["AssumeRolePolicyDocument"]["Statement"]
        assert (trust["Principal"], "Condition" in trust) == ({"Service": "rds.amazonaws.com"}, False), name


def test_a_restored_owners_secret_takes_the_place_of_the_first_everywhere(choice: Choice) -> None:
    arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:rds!cluster-AbC123"
    given = {**choice, "OwnerSecretArn": arn}
    made = resources(given)
    assert outputs(given)["OwnerSecretArn"] == arn
    for proxy in of_type(made, "AWS::RDS::DBProxy").values():
        assert proxy["Auth"][0]["SecretArn"] == arn
        policy = made["ProxyRole"]["Properties"]["Policies"][0]["PolicyDocument"]
        assert policy["Statement"][0]["Resource"][0] == arn
    assert "MasterUserSecret" not in str(made)


def test_a_disk_grows_before_it_is_full_and_alarms_report_the_limits(choice: Choice) -> None:
    made = resources(choice)
    watched = {
        each["Metrics"][0]["MetricStat"]["Metric"]["MetricName"]
        for each in of_type(made, "AWS::CloudWatch::Alarm").values()
    }
    if choice["Database"] == "aurora":
        assert watched == {"ACUUtilization"}
        return
    assert watched == {"CPUUtilization", "FreeStorageSpace"}
    (instance,) = of_type(made, "AWS::RDS::DBInstance").values()
    assert int(instance["MaxAllocatedStorage"]) >= 1.1 * int(instance["AllocatedStorage"])


def test_each_alarm_of_the_database_tells_the_topic_when_there_is_one(choice: Choice) -> None:
    topic = {"AlarmTopicArn": "arn:aws:sns:eu-west-1:123456789012:indexmill"}
    for given, told in ((choice, False), ({**choice, **topic}, True)):
        for each in of_type(resources(given), "AWS::CloudWatch::Alarm").values():
            assert (each["AlarmActions"] == list(topic.values())) is told
    assert not of_type(resources({**choice, "CreateAlarms": "false"}), "AWS::CloudWatch::Alarm")


def test_functions_that_rotate_have_names_of_their_own(choice: Choice) -> None:
    made = of_type(resources(choice), _ROTATION).values()
    names = [each["HostedRotationLambda"]["RotationLambdaName"] for each in made]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 64 for name in names)


def test_passwords_rotate_only_when_asked(choice: Choice) -> None:
    made = resources(choice)
    rotated = [each["SecretId"]["Ref"] for each in of_type(made, _ROTATION).values()]
    expected = list(of_type(made, _SECRET)) if choice["PasswordRotationDays"] != "0" else []
    assert rotated == expected


def test_the_template_passes_every_parameter_with_the_same_default() -> None:
    given = template()["Resources"]["Data"]["Properties"]["Parameters"]
    declared = data_stack()["Parameters"]
    # The range of the network and nothing else is a matter of the nested stack alone.
    assert set(declared) - set(given) == {"VpcCidr"}
    outer = template()["Parameters"]
    for name, value in given.items():
        if name not in ("Stage", "Database"):
            assert outer[value["Ref"]]["Default"] == declared[name]["Default"], name
            assert outer[value["Ref"]].get("MinValue") == declared[name].get("MinValue"), name


def test_functions_in_the_network_take_it_from_the_data_plane() -> None:
    inside = [found["VpcConfig"] for found in functions().values() if "VpcConfig" in found]
    assert inside
    for config in inside:
        condition, network, otherwise = config["Fn::If"]
        assert (condition, otherwise) == ("InVpc", {"Ref": "AWS::NoValue"})
        for name in ("SubnetIds", "SecurityGroupIds"):
            output = {"Fn::GetAtt": ["Data", f"Outputs.{name}"]}
            assert network[name] == {"Fn::If": ["HasDataPlane", {"Fn::Split": [",", output]}, {"Ref": name}]}
    assert template()["Parameters"]["DataPlane"]["Default"] == "none"


KINDS = {
    "OrchestratorApi": "OrchestratorCallerLoginArn",
    "OrchestratorStream": "OrchestratorCallerLoginArn",
    "OrchestratorResults": "OrchestratorLoginArn",
    "OrchestratorSweeper": "OrchestratorLoginArn",
    "OrchestratorDeadLetters": "OrchestratorLoginArn",
    "EmbeddingWriteApi": "EmbeddingCallerLoginArn",
    "EmbeddingReadApi": "EmbeddingCallerLoginArn",
    "EmbeddingWorker": "EmbeddingLoginArn",
    "Migrator": "OwnerSecretArn",
    "IndexBuilder": "OwnerSecretArn",
}
"""The login of each function that uses Postgres."""
DIRECT = {"Migrator", "IndexBuilder"}
"""Statements of theirs set the session up, which pins a connection of the proxy."""


def _with(plane: str, logical_id: str, **own: str) -> dict[str, Any]:
    """Return the function's variables and what its role may read, with parameters of `own`."""
    declared = template()["Parameters"]
    given = {name: str(body.get("Default", "")) for name, body in declared.items()} | own
    made = data_stack()["Outputs"]
    resolver = Resolver(
        {**as_references(declared, {**given, "DataPlane": plane}), "AWS::NoValue": None},
        {f"Data.Outputs.{name}": f"the data plane's {name}" for name in made} if plane != "none" else {},
        conditions=template()["Conditions"],
        keep_references=True,
    )
    role = template()["Resources"][f"{logical_id}Role"]["Properties"]["Policies"][0]["PolicyDocument"]
    secrets: set[str] = set()
    for statement in resolver.resolve(role["Statement"]):
        if statement and statement["Action"] == "secretsmanager:GetSecretValue":
            found = statement["Resource"]
            secrets |= {str(each) for each in (found if isinstance(found, list) else [found])}
    return {**resolver.resolve(variables(logical_id)), "role": secrets}


def test_every_function_that_uses_postgres_has_its_login() -> None:
    assert set(KINDS) == {name for name in functions() if "DATABASE_HOST" in variables(name)}


@pytest.mark.parametrize(("logical_id", "login"), KINDS.items())
def test_functions_take_address_and_login_from_the_data_plane(logical_id: str, login: str) -> None:
    """Those that own the tables go to the server itself, all others to the proxy, where there is one."""
    own = {"DatabaseHost": "own.invalid", "DatabaseUrlSecretArn": "own", "DatabaseName": "own"}
    found = _with("aurora", logical_id, **own)
    host = "DirectHost" if logical_id in DIRECT else "DatabaseHost"
    assert found["DATABASE_HOST"] == f"the data plane's {host}"
    assert found["DATABASE_PORT"] == "the data plane's DatabasePort"
    assert found["DATABASE_NAME"] == "the data plane's DatabaseName"
    assert found["DATABASE_URL_SECRET_ARN"] == f"the data plane's {login}"
    assert found["DATABASE_URL_SECRET_ARN"] in found["role"]
    # One's own names nothing any more: what the data plane has not made may not be read.
    assert "own" not in found["role"]


@pytest.mark.parametrize("logical_id", KINDS)
def test_without_a_data_plane_they_take_those_of_the_parameters(logical_id: str) -> None:
    own = {"DatabaseHost": "own.invalid", "DatabaseUrlSecretArn": "own", "DatabaseName": "corpus"}
    found = _with("none", logical_id, **own)
    names = ("DATABASE_HOST", "DATABASE_PORT", "DATABASE_NAME", "DATABASE_URL_SECRET_ARN")
    assert [found[name] for name in names] == ["own.invalid", "5432", "corpus", "own"]
    assert "own" in found["role"]


def test_the_stack_says_where_its_data_plane_is() -> None:
    shown = {
        body["Value"]["Fn::GetAtt"][1].removeprefix("Outputs."): body["Condition"]
        for body in template()["Outputs"].values()
        if isinstance(body["Value"], dict) and body["Value"].get("Fn::GetAtt", [""])[0] == "Data"
    }
    wanted = {"DatabaseHost", "DirectHost", "DatabaseName", "OwnerSecretArn", "SubnetIds", "SecurityGroupIds"}
    assert shown == dict.fromkeys(wanted, "HasDataPlane")
    assert wanted <= set(data_stack()["Outputs"])


def test_the_migrator_makes_each_login_of_the_data_plane() -> None:
    found = _with("rds", "Migrator")
    kinds = ("ORCHESTRATOR", "ORCHESTRATOR_CALLER", "EMBEDDING", "EMBEDDING_CALLER")
    given = [found[f"{kind}_DATABASE_SECRET_ARN"] for kind in kinds]
    logins = (
        "OrchestratorLoginArn",
        "OrchestratorCallerLoginArn",
        "EmbeddingLoginArn",
        "EmbeddingCallerLoginArn",
    )
    assert given == [f"the data plane's {login}" for login in logins]
    assert set(given) < found["role"]


def test_a_deployment_without_a_database_is_refused_before_anything_is_made() -> None:
    (assertion,) = template()["Rules"]["ADatabaseIsNamed"]["Assertions"]
    assert "DataPlane" in assertion["AssertDescription"]
    secret = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:own-AbC123"
    for plane, arn, fits in (("none", "", False), ("none", secret, True), ("rds", "", True)):
        resolver = Resolver({"DataPlane": plane, "DatabaseUrlSecretArn": arn})
        assert resolver.resolve(assertion["Assert"]) is fits
    # What samconfig.toml has until it is filled in.
    declared = template()["Parameters"]["DatabaseUrlSecretArn"]
    assert declared["Default"] == ""
    assert re.fullmatch(declared["AllowedPattern"], "REPLACE-ME") is None


def test_the_way_to_s3_has_no_policy_of_its_own(choice: Choice) -> None:
    """The Migrator puts its answer into a bucket of CloudFormation, whose name differs between regions."""
    endpoints = of_type(resources(choice), "AWS::EC2::VPCEndpoint").values()
    (s3,) = [each for each in endpoints if str(each["ServiceName"]).endswith(".s3")]
    assert "PolicyDocument" not in s3
    assert s3["RouteTableIds"] == [{"Ref": "PrivateRoutes"}]


_SECRET = "AWS::SecretsManager::Secret"
_ROTATION = "AWS::SecretsManager::RotationSchedule"

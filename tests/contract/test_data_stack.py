"""The nested stack of database and network: complete in every choice, closed, backed up, and wired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.data_stack import CHOICES, data_stack, of_type, outputs, references, resources
from tests.support.function_env import functions, template

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
        assert services == free | dict.fromkeys(("sqs", "secretsmanager", "lambda"), "Interface")
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


_SECRET = "AWS::SecretsManager::Secret"
_ROTATION = "AWS::SecretsManager::RotationSchedule"

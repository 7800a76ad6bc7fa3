"""The cost of an idle system is that of docs/deploying.md, for each choice of the data plane."""

from __future__ import annotations

import pytest

from tests.perf import idle_cost
from tests.support.data_stack import data_stack, edge_stack
from tests.support.function_env import template
from tests.support.repository import ROOT

CHARGED_WHILE_IDLE = {
    "AWS::CloudWatch::Alarm",
    "AWS::EC2::EIP",
    "AWS::EC2::NatGateway",
    "AWS::EC2::VPCEndpoint",
    "AWS::KMS::Key",
    "AWS::RDS::DBCluster",
    "AWS::RDS::DBInstance",
    "AWS::RDS::DBProxy",
    "AWS::SecretsManager::Secret",
    "AWS::WAFv2::WebACL",
}
"""Types that `idle_cost` has a price for; SQS polls and the sweeper are priced by their events."""
FREE_WHILE_IDLE = {
    "AWS::ApiGateway::Account",
    "AWS::ApiGateway::BasePathMapping",
    "AWS::ApiGateway::DomainName",
    "AWS::CloudFormation::CustomResource",
    "AWS::CloudFormation::Stack",
    "AWS::DynamoDB::Table",
    "AWS::EC2::InternetGateway",
    "AWS::EC2::Route",
    "AWS::EC2::RouteTable",
    "AWS::EC2::SecurityGroup",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EC2::Subnet",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::VPC",
    "AWS::EC2::VPCGatewayAttachment",
    "AWS::IAM::Role",
    "AWS::Logs::LogGroup",
    "AWS::Logs::MetricFilter",
    "AWS::Logs::QueryDefinition",
    "AWS::RDS::DBClusterParameterGroup",
    "AWS::RDS::DBParameterGroup",
    "AWS::RDS::DBProxyTargetGroup",
    "AWS::RDS::DBSubnetGroup",
    "AWS::S3::Bucket",
    "AWS::S3::BucketPolicy",
    "AWS::SQS::Queue",
    "AWS::SQS::QueuePolicy",
    "AWS::SecretsManager::RotationSchedule",
    "AWS::SecretsManager::SecretTargetAttachment",
    "AWS::Serverless::Api",
    "AWS::Serverless::Function",
    "AWS::Serverless::LayerVersion",
    "AWS::WAFv2::WebACLAssociation",
}


@pytest.mark.shows("P114", "X19")
def test_the_page_has_the_floor_of_each_choice() -> None:
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    assert idle_cost.table() in page


@pytest.mark.shows("P114", "X19")
def test_the_page_has_the_price_of_the_web_acl() -> None:
    found = idle_cost.edge_cost()
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    assert f"`Edge=waf` adds ${sum(found.values()):.2f}: {found['web ACL']:.2f} for the web ACL and" in page
    assert found == {"web ACL": 5.0, "rules": 4.0}


def test_every_resource_that_is_charged_by_the_hour_has_its_price() -> None:
    """A resource of a new type is counted, or known to cost nothing while it is not used."""
    kinds = {
        body["Type"]
        for stack in (template(), data_stack(), edge_stack())
        for body in stack["Resources"].values()
        if "Condition" not in body or stack is not template()
    }
    assert kinds <= CHARGED_WHILE_IDLE | FREE_WHILE_IDLE
    assert "AWS::RDS::DBProxy" in kinds


@pytest.mark.shows("P114", "X19")
def test_the_alarms_are_in_the_sum() -> None:
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    assert idle_cost.functions_cost()["alarms"] == pytest.approx(4.0)
    assert "for each metric that they read, forty;" in page


@pytest.mark.shows("X19")
def test_without_a_database_there_is_next_to_nothing_to_pay() -> None:
    """Alarms apart, of which an account has ten metrics for free, and which CreateAlarms=false leaves out."""
    found = idle_cost.functions_cost()
    assert sum(found.values()) - found["alarms"] < 4
    assert sum(found.values()) < 8


def test_no_choice_promises_a_database_that_pauses() -> None:
    assert float(data_stack()["Parameters"]["MinCapacity"]["MinValue"]) == 0.5

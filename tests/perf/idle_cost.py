"""Cost of a month without a job, for each choice of the data plane, from template.yaml and the nested stacks.

    python -m tests.perf.idle_cost

Prices are AWS's list for us-east-1, November 2026, without a free tier; a month has 730 hours. What depends
on the amount of data (objects, rows, backups beyond the free amount, logs, traffic) is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from indexmill.contracts.cost import Prices
from local.template.intrinsics import Resolver
from local.template.parameters import as_references
from tests.support.data_stack import edge_stack, of_type, parameters, resources
from tests.support.function_env import functions, template

HOURS: Final = 730.0
ACU_HOUR: Final = 0.12
"""Aurora PostgreSQL Serverless v2, standard storage."""
AURORA_GIB: Final = 0.10
AURORA_LEAST_GIB: Final = 10
INSTANCE_HOUR: Final[Mapping[str, float]] = {
    "db.t4g.micro": 0.016,
    "db.t4g.small": 0.032,
    "db.t4g.medium": 0.065,
    "db.t4g.large": 0.129,
}
"""RDS for PostgreSQL in one zone; each has two vCPUs."""
GP3_GIB: Final = 0.115
PROXY_HOUR: Final = 0.015
"""For each vCPU of an instance, or each ACU of a cluster."""
PROXY_LEAST: Final[Mapping[str, float]] = {"aurora": 8, "rds": 2}
"""ACUs or vCPUs that are charged at least."""
NAT_HOUR: Final = 0.045
ADDRESS_HOUR: Final = 0.005
"""A public IPv4 address."""
ENDPOINT_HOUR: Final = 0.01
"""An interface endpoint in one zone."""
SECRET: Final = 0.40
KMS_KEY: Final = 1.00
ALARM_METRIC: Final = 0.10
"""Each metric that an alarm reads; further ones that it computes are free."""
WEB_ACL: Final = 5.00
WEB_ACL_RULE: Final = 1.00
"""A group of managed rules is one; requests are $0.60 per million."""

POLLERS: Final = 5
"""Of an event source mapping with an empty queue."""
POLL_S: Final = 20
SWEEP_S: Final = 0.2
"""Assumed duration of a sweep that finds nothing."""
SWEEP_READS: Final = 2
"""Items of the state table that a sweep reads: a breaker each."""

SHOWN: Final[tuple[Mapping[str, str], ...]] = (
    {"Database": "rds", "Proxy": "false", "Egress": "nat"},
    {"Database": "rds", "Proxy": "true", "Egress": "nat"},
    {"Database": "rds", "Proxy": "false", "Egress": "endpoints"},
    {"Database": "rds", "Proxy": "true", "Egress": "endpoints"},
    {"Database": "aurora", "Proxy": "false", "Egress": "nat"},
    {"Database": "aurora", "Proxy": "true", "Egress": "nat"},
    {"Database": "aurora", "Proxy": "false", "Egress": "endpoints"},
    {"Database": "aurora", "Proxy": "true", "Egress": "endpoints"},
)


def functions_cost() -> dict[str, float]:
    """Return dollars a month of what template.yaml makes by itself: polls, sweeps, secrets, key, alarms."""
    prices = Prices()
    sources = [
        event
        for found in functions().values()
        for event in found.get("Events", {}).values()
        if event["Type"] == "SQS"
    ]
    polls = len(sources) * POLLERS * HOURS * 3600 / POLL_S
    sweeper = functions()["OrchestratorSweeper"]
    assert sweeper["Events"]["EveryMinute"]["Properties"]["Schedule"] == "rate(1 minute)"
    sweeps = HOURS * 60
    queues = sum(name.endswith(("_QUEUE_URL", "_DLQ_URL")) for name in _variables(sweeper))
    seconds = sweeps * SWEEP_S * sweeper["MemorySize"] / 1024
    return {
        "polls": polls * prices.sqs_request / 1e6,
        "sweeps": (
            sweeps * prices.lambda_request
            + seconds * prices.lambda_gb_s
            + sweeps * queues * prices.sqs_request
            + sweeps * SWEEP_READS * prices.dynamodb_read
        )
        / 1e6,
        "secrets": SECRET * len(list(_made("AWS::SecretsManager::Secret"))),
        "key": KMS_KEY * len(list(_made("AWS::KMS::Key"))),
        "alarms": ALARM_METRIC * sum(_metrics(each) for each in _made("AWS::CloudWatch::Alarm")),
    }


def data_cost(choice: Mapping[str, str]) -> dict[str, float]:
    """Return dollars a month of what stack/data.yaml makes with these parameters and other defaults."""
    made, given = resources(choice), parameters(choice)
    endpoints = of_type(made, "AWS::EC2::VPCEndpoint").values()
    interfaces = [each for each in endpoints if each["VpcEndpointType"] == "Interface"]
    clusters = of_type(made, "AWS::RDS::DBCluster").values()
    instances = of_type(made, "AWS::RDS::DBInstance").values()
    found = {"database": 0.0, "proxy": 0.0}
    for cluster in clusters:
        least = float(cluster["ServerlessV2ScalingConfiguration"]["MinCapacity"])
        found["database"] += least * ACU_HOUR * HOURS + AURORA_LEAST_GIB * AURORA_GIB
    for instance in instances:
        if instance["DBInstanceClass"] != "db.serverless":
            storage = int(instance["AllocatedStorage"]) * GP3_GIB
            found["database"] += INSTANCE_HOUR[instance["DBInstanceClass"]] * HOURS + storage
    units = PROXY_LEAST[given["Database"]]
    found["proxy"] = len(of_type(made, "AWS::RDS::DBProxy")) * units * PROXY_HOUR * HOURS
    found["NAT"] = len(of_type(made, "AWS::EC2::NatGateway")) * NAT_HOUR * HOURS
    found["NAT"] += len(of_type(made, "AWS::EC2::EIP")) * ADDRESS_HOUR * HOURS
    found["endpoints"] = sum(len(each["SubnetIds"]) for each in interfaces) * ENDPOINT_HOUR * HOURS
    # Beside those of the logins, the one that RDS makes for the owner.
    found["secrets"] = SECRET * (len(of_type(made, "AWS::SecretsManager::Secret")) + 1)
    alarms = of_type(made, "AWS::CloudWatch::Alarm").values()
    found["alarms"] = ALARM_METRIC * sum(map(_metrics, alarms))
    return found


def edge_cost() -> dict[str, float]:
    """Return dollars a month of what stack/edge.yaml makes."""
    acls = of_type(edge_stack()["Resources"], "AWS::WAFv2::WebACL").values()
    return {
        "web ACL": WEB_ACL * len(acls),
        "rules": WEB_ACL_RULE * sum(len(each["Rules"]) for each in acls),
    }


def table() -> str:
    """Return the floor of each choice as a table in Markdown, dollars a month."""
    own = functions_cost()
    parts = ", ".join(f"{name} {value:.2f}" for name, value in own.items() if value)
    none = sum(own.values())
    lines = [
        "| `DataPlane` | `DatabaseProxy` | `Egress` | Database | Proxy | Way out | Secrets | Alarms | Sum |",
        "|---|---|---|---|---|---|---|---|---|",
        f"| `none` | - | - | elsewhere | - | elsewhere | - | - | **${none:.2f}** ({parts}) |",
    ]
    for choice in SHOWN:
        found = data_cost(choice)
        way = found["NAT"] + found["endpoints"]
        cells = [found["database"], found["proxy"], way, found["secrets"], found["alarms"]]
        row = [f"`{value}`" for value in choice.values()] + [_dollars(value) for value in cells]
        lines.append(f"| {' | '.join(row)} | **${none + sum(cells):.2f}** |")
    return "\n".join(lines)


def _dollars(value: float) -> str:
    return f"{value:.2f}" if value else "-"


def _variables(function: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = function["Environment"]["Variables"]
    return found


def _made(kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield the properties of the resources that template.yaml makes of a kind with its defaults."""
    declared = template()["Parameters"]
    defaults = {name: str(body.get("Default", "")) for name, body in declared.items()}
    resolver = Resolver(as_references(declared, defaults), conditions=template()["Conditions"])
    for body in template()["Resources"].values():
        if body["Type"] == kind and resolver.includes(body):
            yield body["Properties"]


def _metrics(alarm: Mapping[str, Any]) -> int:
    return sum("MetricStat" in each for each in alarm["Metrics"])


def main() -> None:
    """Print the table."""
    print(table())


if __name__ == "__main__":
    main()

"""A release: what the transform makes of the template's aliases, versions, migration and canary."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from local.template.translation import translate
from tests.support.function_env import GIVEN, functions, template
from tests.support.repository import ROOT
from tests.support.roles import listed

FOLDERS = ("functions", "layers", "sql")
REGION = "eu-west-1"
MIGRATOR = "Migrator"
BUILDER = "IndexBuilder"
"""Invoked by the sweeper about once a month."""
SWEEPER = "OrchestratorSweeper"
"""It names the workers' mappings, which wait for the alarms: no alarm of theirs may wait for it."""
ALARMS = {"ApiFunctionErrors", "WorkerErrors", "ApiErrors", "DeadLetterAge", "CallbackAge"}
# An authorizer's error is its refusal of a key.
REFUSE_BY_ERROR = {"Authorizer", "StreamAuthorizer"}


@pytest.fixture(autouse=True)
def _no_region_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what is deployed, to change."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "template.yaml", tmp_path)
    return tmp_path


def transformed(tree: Path, **parameters: str) -> dict[str, Any]:
    """Return the resources of a tree as CloudFormation gets them, folders uploaded under digests."""

    def uploaded(found: re.Match[str]) -> str:
        digest = hashlib.sha256()
        for file in sorted(path for path in (tree / found[2]).rglob("*") if path.suffix != ".pyc"):
            digest.update(
                str(file.relative_to(tree)).encode() + (file.read_bytes() if file.is_file() else b"")
            )
        return f"{found[1]}: s3://artifacts/{digest.hexdigest()}"

    packaged = tree / "packaged.yaml"
    text = (tree / "template.yaml").read_text()
    packaged.write_text(re.sub(r"(CodeUri|ContentUri): (\S+)", uploaded, text))
    resources: dict[str, Any] = translate(packaged, GIVEN, parameters, REGION)[0]["Resources"]
    return resources


@cache
def resources(**parameters: str) -> dict[str, Any]:
    found: dict[str, Any] = translate(ROOT / "template.yaml", GIVEN, parameters, REGION)[0]["Resources"]
    return found


def of_type(found: dict[str, Any], kind: str) -> dict[str, Any]:
    return {name: body.get("Properties", {}) for name, body in found.items() if body["Type"] == kind}


def versions(found: dict[str, Any]) -> dict[str, str]:
    """Return the logical id of each function's version: another one publishes another version."""
    return {
        properties["FunctionName"]["Ref"]: name
        for name, properties in of_type(found, "AWS::Lambda::Version").items()
    }


def references(node: Any) -> Iterator[str]:
    """Yield the logical ids and parameters that a value refers to."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "Ref":
                yield value
            elif name == "Fn::GetAtt":
                yield value[0] if isinstance(value, list) else value.split(".")[0]
            elif name == "Fn::Sub":
                text = value if isinstance(value, str) else value[0]
                yield from (each.split(".")[0] for each in re.findall(r"\$\{([\w.:]+)\}", text))
                yield from references(value)
            elif name == "Condition" and isinstance(value, str):
                yield from references(template()["Conditions"][value])
            elif name == "Fn::If":
                yield from references(template()["Conditions"][value[0]])
                yield from references(value[1:])
            else:
                yield from references(value)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def outputs(node: Any) -> set[str]:
    return set(re.findall(r"Outputs\.\w+", json.dumps(node)))


def test_one_changed_line_of_the_library_is_a_new_version_of_every_function(tree: Path) -> None:
    before = versions(transformed(tree))
    assert before == versions(transformed(tree))
    with (tree / "layers/indexmill/python/indexmill/platform/settings.py").open("a") as file:
        file.write("# changed\n")
    after = versions(transformed(tree))
    assert set(before) == set(after) == set(functions())
    assert [name for name in before if before[name] == after[name]] == []


@pytest.mark.parametrize("layer", ["base", "vectors"])
def test_another_package_is_a_new_version_of_the_functions_that_have_its_layer(
    tree: Path, layer: str
) -> None:
    name = {"base": "BaseLayer", "vectors": "VectorsLayer"}[layer]
    before = versions(transformed(tree))
    with (tree / "layers" / layer / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    after = versions(transformed(tree))
    using = {each for each, found in functions().items() if {"Ref": name} in found["Layers"]}
    assert using
    assert {each for each in before if before[each] != after[each]} == using


def test_a_changed_function_is_a_new_version_of_those_in_its_folder(tree: Path) -> None:
    before = versions(transformed(tree))
    with (tree / "functions/scraper/worker.py").open("a") as file:
        file.write("# changed\n")
    after = versions(transformed(tree))
    assert {each for each in before if before[each] != after[each]} == {"ScraperApi", "ScraperWorker"}


def test_a_new_migration_runs(tree: Path) -> None:
    before = transformed(tree)["Migration"]["Properties"]["Release"]
    (tree / "sql/9999_more.sql").write_text("SELECT 1;")
    assert transformed(tree)["Migration"]["Properties"]["Release"] != before


def test_a_changed_parameter_is_a_new_version_of_every_function() -> None:
    """The transform does not see parameters' values; the migration's digest of them changes both of these."""
    digest = {"Fn::GetAtt": ["Migration", "ParametersDigest"]}
    found = resources()
    described = {
        properties["FunctionName"]["Ref"]: properties.get("Description")
        for properties in of_type(found, "AWS::Lambda::Version").values()
    }
    # Lambda publishes no second version of an unchanged configuration, so each function has the digest too.
    for name, properties in of_type(found, "AWS::Lambda::Function").items():
        expected = ("", None) if name == MIGRATOR else (digest, digest)
        given = properties["Environment"]["Variables"]["PARAMETERS_DIGEST"]
        assert (given, described[name]) == expected, name


def test_the_digest_is_of_every_parameter_that_reaches_a_function() -> None:
    given = set(template()["Parameters"])
    digested = resources()["Migration"]["Properties"]["Parameters"]
    functions_alone = of_type(resources(), "AWS::Lambda::Function")
    reach = set(references(functions_alone)) & given
    assert reach - set(references(digested)) == set()
    # What a nested stack returns may change too.
    assert outputs(functions_alone) - outputs(digested) == set()


def test_the_functions_wait_for_the_migrations_and_these_only_for_the_migrator() -> None:
    found = resources()
    for name, properties in of_type(found, "AWS::Lambda::Function").items():
        assert ("Migration" in references(properties)) == (name != MIGRATOR), name
    first, todo = set(), ["Migration"]
    while todo:
        name = todo.pop()
        if name in found and name not in first:
            first.add(name)
            todo += references(found[name])
    assert {each for each in first if found[each]["Type"] == "AWS::Lambda::Function"} == {MIGRATOR}


def test_an_older_release_is_known_by_the_number_of_the_migrators_version() -> None:
    properties = resources()["Migration"]["Properties"]
    assert properties["Release"] == {"Ref": versions(resources())[MIGRATOR]}
    assert properties["ServiceToken"] == {"Fn::GetAtt": [MIGRATOR, "Arn"]}


def test_callers_queues_and_schedules_use_the_alias() -> None:
    found = resources()
    aliases = {
        name: each["FunctionName"]["Ref"] for name, each in of_type(found, "AWS::Lambda::Alias").items()
    }
    assert set(aliases.values()) == set(functions())
    used = [
        each["FunctionName"]["Ref"]
        for kind in ("AWS::Lambda::EventSourceMapping", "AWS::Lambda::Permission")
        for each in of_type(found, kind).values()
    ]
    rules = of_type(found, "AWS::Events::Rule").values()
    used += [target["Arn"]["Ref"] for rule in rules for target in rule["Targets"]]
    body = found["Api"]["Properties"]["Body"]
    uris = [
        operation["x-amazon-apigateway-integration"]["uri"]
        for operations in body["paths"].values()
        for method, operation in operations.items()
        if method != "options"  # the gateway's own
    ]
    uris += [
        scheme["x-amazon-apigateway-authorizer"]["authorizerUri"]
        for scheme in body["components"]["securitySchemes"].values()
    ]
    used += [each for uri in uris for each in references(uri) if not each.startswith(("AWS::", "__"))]
    sweeper = found["OrchestratorSweeper"]["Properties"]["Environment"]["Variables"]
    used.append(sweeper["INDEX_BUILDER_FUNCTION"]["Ref"])
    assert set(used) <= set(aliases)
    assert {aliases[each] for each in used} == set(functions()) - {MIGRATOR}


def test_no_function_is_invoked_by_name() -> None:
    """Such an invocation would not go through the alias."""
    statements = [
        statement
        for role in of_type(resources(), "AWS::IAM::Role").values()
        for policy in role.get("Policies", ())
        for statement in policy["PolicyDocument"]["Statement"]
    ]
    invoked = [each["Resource"] for each in statements if "lambda:Invoke" in str(each)]
    # By the alias's name where its resource would wait for the alarms of the function that invokes it.
    assert invoked == [{"Fn::Sub": "${ScraperApi.Arn}:live"}, {"Ref": f"{BUILDER}Aliaslive"}]


def test_without_the_canary_there_is_no_codedeploy() -> None:
    assert [name for name, body in resources().items() if "CodeDeploy" in body["Type"]] == []
    assert all("UpdatePolicy" not in body for body in resources().values())


@pytest.mark.shows("R190")
def test_the_canary_is_taken_back_on_every_alarm() -> None:
    found = resources(Canary="true", CanaryType="Canary10Percent30Minutes")
    updated = {
        body["Properties"]["FunctionName"]["Ref"]
        for body in found.values()
        if body["Type"] == "AWS::Lambda::Alias"
        and "CodeDeployLambdaAliasUpdate" in body.get("UpdatePolicy", {})
    }
    # The migrations come before the canary, whatever becomes of it.
    assert updated == set(functions()) - {MIGRATOR, BUILDER}
    for group in of_type(found, "AWS::CodeDeploy::DeploymentGroup").values():
        alarms = group["AlarmConfiguration"]["Fn::If"]
        assert alarms[0] == "Canaries"
        assert set(references(alarms[1])) == ALARMS
        assert "DEPLOYMENT_STOP_ON_ALARM" in group["AutoRollbackConfiguration"]["Events"]
        assert group["DeploymentConfigName"]["Fn::Sub"][1] == {"ConfigName": "Canary10Percent30Minutes"}
    of_versions = {"ApiFunctionErrors", "WorkerErrors"}
    conditions = {alarm: found[alarm].get("Condition") for alarm in ALARMS}
    assert {alarm for alarm, condition in conditions.items() if condition == "Canaries"} == of_versions
    assert {conditions[alarm] for alarm in ALARMS - of_versions} == {"CreatesAlarmsOrCanaries"}


def test_the_error_alarms_watch_the_new_version_of_every_function() -> None:
    found = resources(Canary="true")
    published = versions(found)
    watched = {}
    for alarm in ("ApiFunctionErrors", "WorkerErrors"):
        metrics = found[alarm]["Properties"]["Metrics"]
        # CloudWatch's limit for an alarm on an expression.
        assert len(metrics) <= 10
        for metric in metrics[1:]:
            dimensions = {
                each["Name"]: each["Value"] for each in metric["MetricStat"]["Metric"]["Dimensions"]
            }
            watched[dimensions["FunctionName"]["Ref"]] = dimensions
    assert set(watched) == set(functions()) - {MIGRATOR, BUILDER, SWEEPER} - REFUSE_BY_ERROR
    for name, dimensions in watched.items():
        assert dimensions["Resource"] == {"Fn::Sub": f"${{{name}}}:live"}
        assert dimensions["ExecutedVersion"] == {"Fn::GetAtt": [published[name], "Version"]}


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"Canary": "true"},
        {"Canary": "true", "WarmStart": "provisioned"},
        {"Canary": "true", "DataPlane": "aurora"},
    ],
)
def test_no_resource_waits_for_itself(parameters: dict[str, str]) -> None:
    found = resources(**parameters)
    waits_for = {
        name: {each for each in (*references(body), *listed(body.get("DependsOn", []))) if each in found}
        for name, body in found.items()
    }
    # Raises CycleError for a template that CloudFormation refuses.
    order = list(TopologicalSorter(waits_for).static_order())
    assert sorted(order) == sorted(found)


@pytest.mark.shows("R265")
def test_search_and_submission_start_warm_by_parameter() -> None:
    found = resources()
    warm = {"OrchestratorApi", "EmbeddingReadApi"}
    snapshots = {
        name: properties["SnapStart"]["Fn::If"][0]
        for name, properties in of_type(found, "AWS::Lambda::Function").items()
        if "SnapStart" in properties
    }
    provisioned = {
        properties["FunctionName"]["Ref"]: properties["ProvisionedConcurrencyConfig"]["Fn::If"][0]
        for properties in of_type(found, "AWS::Lambda::Alias").values()
        if "ProvisionedConcurrencyConfig" in properties
    }
    # Lambda does not take both for one function.
    assert snapshots == dict.fromkeys(warm, "StartsFromSnapshot")
    assert provisioned == dict.fromkeys(warm, "IsProvisioned")
    conditions = template()["Conditions"]
    assert conditions["StartsFromSnapshot"] == {"Fn::Equals": [{"Ref": "WarmStart"}, "snapshot"]}
    assert conditions["IsProvisioned"] == {"Fn::Equals": [{"Ref": "WarmStart"}, "provisioned"]}

"""The template, the code and the published contract say the same."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import yaml

from indexmill.access.settings import AuthorizerSettings, StreamAuthorizerSettings
from indexmill.chunking.settings import ChunkingApiSettings, ChunkingWorkerSettings
from indexmill.contracts.identity import SCOPES
from indexmill.embedding.settings import (
    EmbeddingReadApiSettings,
    EmbeddingWorkerSettings,
    EmbeddingWriteApiSettings,
)
from indexmill.orchestrator.http.api import HEALTH
from indexmill.orchestrator.settings import (
    OrchestratorApiSettings,
    OrchestratorDeadLettersSettings,
    OrchestratorResultsSettings,
    OrchestratorStreamSettings,
    OrchestratorSweeperSettings,
)
from indexmill.orchestrator.store.sweep import Retention
from indexmill.platform.settings import FunctionSettings
from indexmill.scraper.settings import ScraperApiSettings, ScraperSettings, ScraperWorkerSettings
from local.template.intrinsics import Resolver
from tests.support.function_env import environment, functions, template, variables
from tests.support.repository import ROOT
from tools.openapi import TARGET, rendered, routers

SETTINGS: list[type[FunctionSettings]] = [
    AuthorizerSettings,
    ChunkingApiSettings,
    ChunkingWorkerSettings,
    EmbeddingReadApiSettings,
    EmbeddingWorkerSettings,
    EmbeddingWriteApiSettings,
    OrchestratorApiSettings,
    OrchestratorDeadLettersSettings,
    OrchestratorResultsSettings,
    OrchestratorStreamSettings,
    OrchestratorSweeperSettings,
    ScraperApiSettings,
    ScraperWorkerSettings,
    StreamAuthorizerSettings,
]
# Read by libraries or by no code, not by our settings.
FOREIGN = {"POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE", "PARAMETERS_DIGEST"}
POSTGRES_CONNECTIONS = 80


def template_routes() -> set[tuple[str, str]]:
    events = [event for found in functions().values() for event in found.get("Events", {}).values()]
    return {
        (event["Properties"]["Method"].upper(), event["Properties"]["Path"])
        for event in events
        if event["Type"] == "Api"
    }


@pytest.mark.shows("S13")
def test_template_routes_are_code_routes_are_the_published_ones() -> None:
    all_routes: list[Any] = [route for router in routers() for route in router.routes]
    code = {
        (method, route.path) for route in all_routes if route.include_in_schema for method in route.methods
    }
    published = {
        (method.upper(), path)
        for path, methods in yaml.safe_load(TARGET.read_text())["paths"].items()
        for method in methods
    }
    assert template_routes() == code == published


@pytest.mark.shows("S12", "B22")
def test_every_path_answers_a_preflight() -> None:
    answered = template()["Resources"]["Api"]["Properties"]["DefinitionBody"]["paths"]
    assert {path for path, methods in answered.items() if "options" in methods} == {
        path for _, path in template_routes()
    }


@pytest.mark.shows("P080")
def test_every_route_of_the_template_has_a_scope_as_api_md_says() -> None:
    declared = {}
    for path, methods in yaml.safe_load(TARGET.read_text())["paths"].items():
        for method, operation in methods.items():
            ways = [
                scopes for way in operation["security"] for name, scopes in way.items() if name == "ApiKey"
            ]
            assert [len(scopes) for scopes in ways] == ([] if path == HEALTH else [1]), (method, path)
            declared[method.upper(), path] = ways[0][0] if ways else None
    assert declared.keys() == template_routes()
    assert set(declared.values()) <= {*SCOPES, None}
    section = (ROOT / "docs/api.md").read_text(encoding="utf-8").split("\n## Scopes\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+:\w+)` \| (.*) \|$", section, re.MULTILINE)
    assert sorted(scope for scope, _ in rows) == sorted(SCOPES)
    told = [(route, scope) for scope, cell in rows for route in re.findall(r"`([A-Z]+) (/[^`]+)`", cell)]
    assert len(told) == len(dict(told))
    assert {**dict(told), ("GET", HEALTH): None} == declared
    routes: list[Any] = [route for router in routers() for route in router.routes]
    of_paths = {route.path: route.openapi_extra for route in routes if route.include_in_schema}
    # Other spellings of a path, which the document does not have.
    others = [route for route in routes if not route.include_in_schema]
    assert others
    assert all(route.openapi_extra == of_paths[route.path.rstrip("/")] for route in others)


def test_the_published_contract_is_fresh() -> None:
    assert TARGET.read_text() == rendered()


@pytest.mark.shows("S13")
def test_no_route_is_a_catch_all() -> None:
    assert all(method != "ANY" and "+" not in path for method, path in template_routes())


def test_every_function_with_settings_is_in_the_template() -> None:
    without = {"Audit", "Migrator", "IndexBuilder"}
    assert {settings.function for settings in SETTINGS} | without == set(functions())


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings.function)
def test_the_template_sets_what_the_settings_read(settings: type[FunctionSettings]) -> None:
    """Required fields are set, nothing is set that is not read, and no literal of a secret is set."""
    names = set(variables(settings.function)) - FOREIGN
    fields = {name.upper(): field for name, field in settings.model_fields.items()}
    assert names <= set(fields)
    assert {name for name, field in fields.items() if field.is_required()} <= names
    secrets = {name.removesuffix("_SECRET_ARN") for name in fields if name.endswith("_SECRET_ARN")}
    assert not secrets & names
    assert {f"{name}_SECRET_ARN" for name in secrets} <= names


@pytest.mark.shows("S28")
def test_messages_are_remembered_as_long_as_a_queue_keeps_them() -> None:
    queues = [each for each in template()["Resources"].values() if each["Type"] == "AWS::SQS::Queue"]
    longest = max(each["Properties"]["MessageRetentionPeriod"] for each in queues)
    assert timedelta(seconds=longest) <= Retention().inbox


@pytest.mark.fault("F31")
@pytest.mark.parametrize(("api", "streams"), [(1, None), (8, 30)], ids=["behind a proxy", "reserved"])
def test_the_postgres_functions_fit_its_connections(api: int, streams: int | None) -> None:
    """Behind a proxy each REST function finds at least one; without one all are bounded."""
    defaults = {name: found.get("Default") for name, found in template()["Parameters"].items()}

    def number(value: Any) -> int:
        return int(defaults[value["Ref"]] if isinstance(value, dict) else value)

    consumers, others, rest = 0, 0, 0
    for name, found in functions().items():
        if "DATABASE_URL_SECRET_ARN" not in found["Environment"]["Variables"]:
            continue
        events = list(found.get("Events", {}).values())
        kinds = {event["Type"] for event in events}
        if kinds == {"SQS"}:
            limits = [event["Properties"]["ScalingConfig"]["MaximumConcurrency"] for event in events]
            consumers += sum(number(limit) for limit in limits)
        elif "STREAM_WINDOWS" in variables(name):
            others += number(variables(name)["STREAM_WINDOWS"]) if streams is None else streams
            assert _reserved(name) == ["ReservesForStreams", "StreamReservedConcurrency"]
        elif kinds == {"Api"}:
            rest += api
            assert _reserved(name) == ["ReservesForApi", "ApiReservedConcurrency"]
        else:
            # One run at a time, by a schedule or by a deployment.
            assert kinds <= {"Schedule"}, f"nothing bounds {name}"
            others += 1
    assert 0 < consumers < POSTGRES_CONNECTIONS // 2
    assert rest > 0
    assert consumers + others + rest <= POSTGRES_CONNECTIONS
    if streams is not None:
        advice = template()["Parameters"]["ApiReservedConcurrency"]["Description"]
        assert f"{api}, with StreamReservedConcurrency {streams} " in advice


def _reserved(logical_id: str) -> list[str]:
    """Return the condition under which a function has reserved executions, and the parameter of how many."""
    condition, number, otherwise = functions()[logical_id]["ReservedConcurrentExecutions"]["Fn::If"]
    assert otherwise == {"Ref": "AWS::NoValue"}
    return [condition, number["Ref"]]


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({}, False),
        ({"DatabaseProxy": "true"}, False),
        ({"DatabaseBehindProxy": "true"}, True),
        ({"DataPlane": "rds"}, True),
        ({"DataPlane": "rds", "DatabaseProxy": "false"}, False),
        ({"DataPlane": "rds", "DatabaseProxy": "false", "DatabaseBehindProxy": "true"}, False),
        ({"ApiReservedConcurrency": "8"}, False),
        ({"ApiReservedConcurrency": "8", "StreamReservedConcurrency": "30"}, True),
    ],
)
def test_connections_that_nothing_bounds_are_refused(given: dict[str, str], fits: bool) -> None:
    defaults = {name: str(found.get("Default", "")) for name, found in template()["Parameters"].items()}
    (assertion,) = template()["Rules"]["ConnectionsAreBounded"]["Assertions"]
    assert Resolver(defaults | given).resolve(assertion["Assert"]) is fits
    assert "ApiReservedConcurrency" in assertion["AssertDescription"]


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({}, True),
        ({"Stage": "prod"}, False),
        ({"Stage": "staging"}, False),
        ({"Stage": "prod", "UserAgent": "AcmeBot/1.0 (+https://acme.org/bot)"}, True),
    ],
)
def test_outside_development_a_site_can_reach_the_operator(given: dict[str, str], fits: bool) -> None:
    defaults = {name: str(found.get("Default", "")) for name, found in template()["Parameters"].items()}
    (assertion,) = template()["Rules"]["ASiteCanReachYou"]["Assertions"]
    assert Resolver(defaults | given).resolve(assertion["Assert"]) is fits
    assert "UserAgent" in assertion["AssertDescription"]


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ("AcmeBot/1.0 (+https://acme.org/bot)", True),
        ("acme-bot/2 (search; +http://acme.org/bot; v2)", True),
        ("AcmeBot/1.0 (bot@acme.org)", True),
        ("AcmeBot/1.0", False),
        ("AcmeBot/1.0 (search)", False),
        ("Mozilla/5.0 (compatible; AcmeBot/1.0)", False),
        ("AcmeBot (+https://acme.org/bot)", False),
        ("AcmeBot/1.0 (+https://acme.org/bot)\r\nX: y", False),
        ("REPLACE-ME", False),
        ("", False),
    ],
)
def test_a_user_agent_has_a_name_and_a_contact(value: str, fits: bool) -> None:
    declared = template()["Parameters"]["UserAgent"]
    assert (re.fullmatch(declared["AllowedPattern"], value) is not None) is fits
    assert re.fullmatch(declared["AllowedPattern"], declared["Default"])


@pytest.mark.parametrize("kind", [ScraperApiSettings, ScraperWorkerSettings])
def test_the_longest_crawl_delay_is_a_parameter(kind: type[ScraperSettings]) -> None:
    assert variables(kind.function)["MAX_CRAWL_DELAY_S"] == {"Ref": "MaxCrawlDelay"}
    settings = kind.from_environment(environment(kind.function))
    assert settings.max_crawl_delay_s == template()["Parameters"]["MaxCrawlDelay"]["Default"] == 60


@pytest.mark.parametrize(("days", "known_for_days"), [(30, 15), (400, 200)])
def test_known_content_is_trusted_for_half_of_what_the_bucket_keeps(days: int, known_for_days: float) -> None:
    given = {**environment("ScraperWorker"), "RAW_RETENTION_DAYS": str(days)}
    settings = ScraperWorkerSettings.from_environment(given)
    assert settings.known_for == timedelta(days=known_for_days)


def test_the_bucket_deletes_raw_content_after_the_days_that_the_scraper_reckons_with() -> None:
    bucket = template()["Resources"]["ContentBucket"]["Properties"]
    (raw,) = [each for each in bucket["LifecycleConfiguration"]["Rules"] if each["Prefix"] == "raw/"]
    days = {"Ref": "RawRetentionDays"}
    assert (raw["Status"], raw["ExpirationInDays"]) == ("Enabled", days)
    assert variables("ScraperWorker")["RAW_RETENTION_DAYS"] == days


@pytest.mark.shows("S15")
def test_each_function_has_a_role_of_its_own() -> None:
    roles = Counter(str(found["Role"]) for found in functions().values())
    assert max(roles.values()) == 1


@pytest.mark.parametrize(
    ("logical_id", "stage"),
    [("ScraperWorker", "Scrape"), ("ChunkingWorker", "Chunk"), ("EmbeddingWorker", "Embed")],
)
def test_workers_may_only_call_back(logical_id: str, stage: str) -> None:
    """Services never call each other: their roles do not let them."""
    policy = template()["Resources"][f"{logical_id}Role"]["Properties"]["Policies"][0]["PolicyDocument"]
    sends = [
        str(statement["Resource"])
        for statement in policy["Statement"]
        if statement.get("Action") == "sqs:SendMessage"
    ]
    assert sends
    for resource in sends:
        assert set(re.findall(r"(\w+)(?:Queue|Dlq)", resource)) <= {"Callbacks", stage}
        assert f"{stage}Queue" not in resource


@pytest.mark.shows("S7")
def test_every_answer_has_a_model_and_no_field_of_the_inside() -> None:
    published = yaml.safe_load(TARGET.read_text())
    schemas = published["components"]["schemas"]
    for path, methods in published["paths"].items():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                for media_type, content in answer.get("content", {}).items():
                    if media_type == "application/json" and status.startswith("2"):
                        assert "$ref" in content["schema"], (path, status)
    # What a DSSE envelope calls payload is what it shows.
    schemas = {name: schema for name, schema in schemas.items() if name != "SignedReport"}
    fields = {field for schema in schemas.values() for field in schema.get("properties", {})}
    assert fields.isdisjoint(
        {"raw_claims", "internal", "scopes", "api_key", "payload", "trace", "corpus_key"}
    )

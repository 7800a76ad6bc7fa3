"""template.yaml as the local cloud reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.front.throttle import Throttles
from local.template.cron import parse_cron
from local.template.intrinsics import TemplateError
from local.template.parameters import ParameterError
from local.template.spec import RateRule, Throttle
from local.template.template import CloudSpec, Template
from local.template.translation import translate
from tests.support.function_env import GIVEN
from tests.support.repository import ROOT

REGION, ACCOUNT = "eu-west-1", "000000000000"
SITE = "127.0.0.1:8081"
DEPLOYMENT = re.compile(r"(?<=ApiDeployment)\w+|(?<=deployment id: )\w+")


@pytest.fixture(scope="module", autouse=True)
def _no_region_stays_behind() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        yield


def read(path: Path = ROOT / "template.yaml", **overrides: str) -> Template:
    translated, parameters = translate(
        path, {**GIVEN, "AllowedPrivateHosts": SITE, "Unknown": "x"}, overrides, REGION
    )
    return Template(translated, parameters, folder=path.parent, region=REGION, account_id=ACCOUNT)


def cloud(template: Template) -> CloudSpec:
    names = template.stateful()["Resources"]
    ids = {name: f"http://sqs/{name}" if "Queue" in name or "Dlq" in name else name.lower() for name in names}
    return template.cloud(ids, {name: f"arn:aws:x:{REGION}:{ACCOUNT}:{name}" for name in names})


@pytest.fixture(scope="module")
def whole() -> CloudSpec:
    """Return the repository's own cloud with all defaults."""
    return cloud(read())


def test_a_translation_is_kept_until_the_template_or_an_override_changes(tmp_path: Path) -> None:
    kept, template = tmp_path / "kept", tmp_path / "template.yaml"
    kept.mkdir()
    template.write_text((ROOT / "template.yaml").read_text())

    def translated(site: str = SITE, **overrides: str) -> tuple[dict[str, Any], dict[str, str], int]:
        automatic = {**GIVEN, "AllowedPrivateHosts": site}
        found = translate(template, automatic, overrides, REGION, cache=kept)
        new = translate(template, automatic, overrides, REGION)
        # The transform numbers an API's deployments, by what it did before in this process too.
        texts = {DEPLOYMENT.sub("", json.dumps(each)) for each in (found, new)}
        assert len(texts) == 1
        return *found, len(list(kept.iterdir()))

    first, _, count = translated()
    again, parameters, same = translated("127.0.0.1:8082")
    assert (again, parameters["AllowedPrivateHosts"]) == (first, "127.0.0.1:8082")
    assert (count, same, translated(Edge="waf")[2]) == (1, 1, 2)
    template.write_text(template.read_text().replace("Description: ", "Description: The ", 1))
    assert translated()[2] == 3
    with pytest.raises(ParameterError, match="has no parameter Nothing"):
        translated(Nothing="x")


def test_stateful_resources_have_fixed_names_and_no_functions_left() -> None:
    part = read(ScrapeVisibility="400").stateful()
    resources = part["Resources"]
    assert {body["Type"] for body in resources.values()} == {
        *("AWS::SQS::Queue", "AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::KMS::Key"),
    }
    queue = resources["ScrapeQueue"]["Properties"]
    assert (queue["QueueName"], queue["VisibilityTimeout"]) == ("indexmill-ScrapeQueue", "400")
    assert resources["ContentBucket"]["Properties"]["BucketName"] == "indexmill-contentbucket"


def test_parameters_are_default_automatic_or_given() -> None:
    parameters = read(LogLevel="DEBUG").parameters
    assert (parameters["LogLevel"], parameters["AllowedPrivateHosts"]) == ("DEBUG", SITE)
    assert parameters["ScrapeTimeout"] == "60"
    assert "Unknown" not in parameters
    assert read(AllowedPrivateHosts="other:1").parameters["AllowedPrivateHosts"] == "other:1"


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(ParameterError, match="no parameter ScrapeTimout; it has ScrapeTimeout"):
        read(ScrapeTimout="5")


def test_a_function_has_its_code_layers_and_environment(whole: CloudSpec) -> None:
    worker = {each.logical_id: each for each in whole.functions}["ScraperWorker"]
    assert (worker.name, worker.handler, worker.runtime) == ("ScraperWorker", "worker.handler", "python3.13")
    assert (worker.timeout_s, worker.reserved_concurrency) == (60, None)
    assert worker.code_dir == ROOT / "functions" / "scraper"
    # The other layers are built; here their packages are those of this environment.
    assert worker.layer_dirs == (ROOT / "layers" / "indexmill",)
    environment = dict(worker.environment)
    assert environment["SCRAPE_QUEUE_URL"] == "http://sqs/ScrapeQueue"
    assert (environment["BUCKET_NAME"], environment["STATE_TABLE"]) == ("contentbucket", "statetable")
    assert (environment["STAGE"], environment["ALLOWED_PRIVATE_HOSTS"]) == ("dev", SITE)
    assert all(isinstance(value, str) for value in environment.values())


def test_every_function_has_its_handler(whole: CloudSpec) -> None:
    assert len(whole.functions) > 10
    for function in whole.functions:
        module = function.handler.split(".")[0]
        assert (function.code_dir / f"{module}.py").is_file(), function.logical_id
        assert all(each.is_dir() for each in function.layer_dirs)


def test_routes_say_who_answers_and_who_checks(whole: CloudSpec) -> None:
    assert whole.api is not None
    routes = {f"{route.method} {route.path}": route for route in whole.api.routes}
    assert routes.keys() == {
        "POST /orchestrator/jobs",
        "GET /orchestrator/jobs",
        "GET /orchestrator/jobs/summary",
        "GET /orchestrator/health",
        "GET /orchestrator/limits",
        "GET /orchestrator/jobs/{job_id}",
        "GET /orchestrator/jobs/{job_id}/history",
        "GET /orchestrator/jobs/{job_id}/report",
        "GET /orchestrator/jobs/{job_id}/stream",
        "POST /orchestrator/jobs/{job_id}/stream-token",
        "POST /orchestrator/jobs/{job_id}/complete",
        "POST /orchestrator/jobs/{job_id}/cancel",
        "POST /orchestrator/jobs/{job_id}/retry",
        "POST /orchestrator/jobs/retry",
        "POST /orchestrator/jobs/{job_id}/replay",
        "GET /orchestrator/jobs/{job_id}/diff",
        "GET /orchestrator/batches/{batch_id}",
        "POST /orchestrator/batches/{batch_id}/cancel",
        "POST /orchestrator/uploads",
        "POST /scraper/scrape",
        "POST /scraper/enqueue",
        "POST /chunking/chunk",
        "POST /chunking/enqueue",
        "POST /embedding/embed",
        "POST /embedding/enqueue",
        "POST /embedding/search",
        "GET /embedding/corpora",
        "GET /embedding/corpora/{name}",
        "GET /embedding/corpora/{name}/documents",
        "GET /embedding/corpora/{name}/documents/{document_id}",
        "GET /embedding/corpora/{name}/documents/{document_id}/chunks",
        "GET /embedding/corpora/{name}/documents/{document_id}/content",
        "POST /embedding/corpora/{name}/rename",
        "GET /embedding/corpora/{name}/grants",
        "POST /embedding/corpora/{name}/verify",
        "POST /embedding/corpora/{name}/share",
        "POST /embedding/corpora/{name}/unshare",
    }
    stream = routes["GET /orchestrator/jobs/{job_id}/stream"]
    assert (stream.authorizer, stream.function) == ("Stream", "OrchestratorStream")
    health = routes["GET /orchestrator/health"]
    assert (health.authorizer, health.function) == (None, "OrchestratorApi")
    assert {route.authorizer for route in routes.values() if route not in (stream, health)} == {"ApiKey"}
    assert routes["POST /embedding/search"].function == "EmbeddingReadApi"
    assert {route.timeout_ms for route in routes.values()} == {29_000}
    authorizer = whole.api.authorizers["ApiKey"]
    assert (authorizer.function, authorizer.identity_headers, authorizer.ttl_s) == (
        "Authorizer",
        ("X-API-Key",),
        60,
    )
    authorizer = whole.api.authorizers["Stream"]
    assert (authorizer.function, authorizer.identity_headers, authorizer.ttl_s) == ("StreamAuthorizer", (), 0)
    refusal = whole.api.gateway_responses["AUTHORIZER_FAILURE"]
    assert (refusal.status, refusal.headers["Retry-After"]) == (503, "5")


def test_a_web_acl_is_that_of_the_nested_stack_when_the_stack_is_made(whole: CloudSpec) -> None:
    assert whole.web_acl is None
    acl = cloud(read(Edge="waf", EdgeRequestsPerAddress="50", EdgeWindowSeconds="300")).web_acl
    assert acl is not None
    assert [rule.name for rule in acl.rules] == ["rate-by-address", "rate-by-key", "large-body"]
    assert [(rule.limit, rule.window_s) for rule in acl.rules if isinstance(rule, RateRule)] == [
        (50, 300),
        (6000, 300),
    ]


EVERYTHING_ELSE = Throttle(rate=500, burst=1000)
SYNCHRONOUS, QUEUED = Throttle(rate=50, burst=100), Throttle(rate=100, burst=200)
PROFILES = {
    "POST /orchestrator/jobs": Throttle(rate=200, burst=500),
    "GET /orchestrator/jobs/{job_id}/stream": Throttle(rate=50, burst=100),
    "POST /scraper/scrape": SYNCHRONOUS,
    "POST /scraper/enqueue": QUEUED,
    "POST /chunking/chunk": SYNCHRONOUS,
    "POST /chunking/enqueue": QUEUED,
    "POST /embedding/embed": SYNCHRONOUS,
    "POST /embedding/enqueue": QUEUED,
    "POST /embedding/search": Throttle(rate=200, burst=400),
    # Results: no less than the account takes.
    "POST /orchestrator/jobs/{job_id}/complete": Throttle(rate=10_000, burst=5_000),
}


@pytest.mark.shows("R103", "R104")
def test_each_route_is_throttled_by_its_profile(whole: CloudSpec) -> None:
    """Every setting names a route, and each route lets through its own burst and then its own rate."""
    assert whole.api is not None
    routes = [(route.method, route.path) for route in whole.api.routes]
    assert whole.throttles == {**PROFILES, "*": EVERYTHING_ELSE}
    assert PROFILES.keys() <= {f"{method} {path}" for method, path in routes}
    now = 0.0
    throttles = Throttles(whole.throttles, lambda: now)
    for method, path in routes:
        limit = PROFILES.get(f"{method} {path}", EVERYTHING_ELSE)
        now += 3600.0
        assert sum(throttles.allow(method, path) for _ in range(limit.burst + 10)) == limit.burst
        now += 10.5 / limit.rate
        assert sum(throttles.allow(method, path) for _ in range(20)) == 10


def test_the_integration_time_out_is_a_parameter() -> None:
    api = cloud(read(IntegrationTimeoutSeconds="6")).api
    assert api is not None
    assert {route.timeout_ms for route in api.routes} == {6_000}


def test_sources_read_their_queues(whole: CloudSpec) -> None:
    sources = {(source.function, source.queue): source for source in whole.sources}
    scrape = sources["ScraperWorker", "ScrapeQueue"]
    assert (scrape.batch_size, scrape.maximum_concurrency, scrape.window_s) == (10, 10, 0)
    assert all(source.report_batch_item_failures and source.enabled for source in whole.sources)
    dead = {queue for function, queue in sources if function == "OrchestratorDeadLetters"}
    assert dead == {"ScrapeDlq", "ChunkDlq", "EmbedDlq", "CallbacksDlq"}


def test_the_sweeper_runs_each_minute(whole: CloudSpec) -> None:
    (schedule,) = whole.schedules
    assert (schedule.function, schedule.every_s, schedule.enabled) == ("OrchestratorSweeper", 60, True)


def test_a_visibility_below_six_time_outs_is_refused() -> None:
    read().check_visibility()
    read(ScrapeTimeout="10", ScrapeVisibility="60").check_visibility()
    message = "ScrapeQueue hides messages for 59 s.* raise ScrapeVisibility to 60"
    with pytest.raises(TemplateError, match=message):
        read(ScrapeTimeout="10", ScrapeVisibility="59").check_visibility()


def test_a_batching_window_is_read_and_counts_for_the_visibility() -> None:
    given = {"ScrapeTimeout": "10", "ScrapeBatchingWindow": "5"}
    sources = cloud(read(**given, ScrapeVisibility="65")).sources
    assert {each.queue: each.window_s for each in sources if each.window_s} == {"ScrapeQueue": 5}
    read(**given, ScrapeVisibility="65").check_visibility()
    message = "10 s of ScraperWorker and its batching window of 5 s; raise ScrapeVisibility to 65"
    with pytest.raises(TemplateError, match=message):
        read(**given, ScrapeVisibility="64").check_visibility()


SMALL = """
Transform: AWS::Serverless-2016-10-31
Parameters: {Wide: {Type: String, Default: "no"}}
Conditions: {IsWide: !Equals [!Ref Wide, "yes"]}
Resources:
  Worker:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: code/
      Handler: app.handler
      Runtime: python3.13
      ReservedConcurrentExecutions: 4
      Environment: {Variables: {FLAG: true, NUMBER: 3, EXTRA: !If [IsWide, "1", !Ref "AWS::NoValue"]}}
  Extra:
    Type: AWS::SQS::Queue
    Condition: IsWide
"""


def small(tmp_path: Path, text: str = SMALL, **overrides: str) -> Template:
    file = tmp_path / "template.yaml"
    file.write_text(text)
    return read(file, **overrides)


def test_conditions_decide_what_exists(tmp_path: Path) -> None:
    narrow, wide = small(tmp_path), small(tmp_path, Wide="yes")
    assert (narrow.stateful()["Resources"].keys(), wide.stateful()["Resources"].keys()) == (set(), {"Extra"})
    (worker,) = cloud(narrow).functions
    assert worker.environment == {"FLAG": "true", "NUMBER": "3"}
    assert cloud(wide).functions[0].environment["EXTRA"] == "1"
    assert (worker.reserved_concurrency, worker.timeout_s, worker.memory_mb) == (4, 3, 128)
    assert cloud(narrow).api is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a list", "it has no Resources"),
        ("Resources: {A: [", "is not a template"),
        (
            "Transform: AWS::Serverless-2016-10-31\nResources: {A: {Type: 'AWS::Serverless::Function'}}",
            "translated",
        ),
    ],
)
def test_what_is_no_template_is_refused_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        small(tmp_path, text)


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="cannot be read: No such file"):
        read(tmp_path / "none.yaml")


def schedule(tmp_path: Path, expression: str) -> Any:
    event = f"{{Tick: {{Type: Schedule, Properties: {{Schedule: {expression}}}}}}}"
    return cloud(
        small(tmp_path, SMALL.replace("ReservedConcurrentExecutions: 4", f"Events: {event}"))
    ).schedules


def test_rates_are_seconds_and_calendars_are_read(tmp_path: Path) -> None:
    assert [each.every_s for each in schedule(tmp_path, "rate(2 hours)")] == [7200]
    assert [each.every_s for each in schedule(tmp_path, "rate(1 day)")] == [86400]
    (noon,) = schedule(tmp_path, '"cron(0 12 * * ? *)"')
    assert noon.cron == parse_cron("0 12 * * ? *")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("rate(1 hours)", "AWS takes 1 hour, 2 hours"),
        ("rate(5 minute)", "AWS takes 1 minute, 2 minutes"),
        ("rate(0 minutes)", "AWS takes 1 minute, 2 minutes"),
        ("rate(30 seconds)", r"AWS takes rate\(…\) and cron\(…\)"),
        ('"cron(0 12 * * *)"', "has 5 fields; AWS wants six"),
        ('"cron(0 12 * * * *)"', r"one of day-of-month and day-of-week must be \?"),
    ],
)
def test_a_schedule_that_aws_would_refuse_is_refused(tmp_path: Path, expression: str, message: str) -> None:
    with pytest.raises(TemplateError, match=f"is scheduled by.*{message}"):
        schedule(tmp_path, expression)

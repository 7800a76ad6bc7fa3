"""samconfig.toml, read by SAM CLI itself and judged by the template's own constraints."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from local.template.intrinsics import Resolver
from local.template.parameters import ParameterError, parameter_values
from stack.rules._source import Source
from stack.rules.reservations import reserved
from tests.support import sam
from tests.support.function_env import template
from tests.support.repository import ROOT

pytestmark = pytest.mark.skipif(not sam.PYTHON.exists(), reason=sam.NEEDED)

ENVIRONMENTS = ["default", "staging", "prod"]
CONFIG = (ROOT / "samconfig.toml").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:indexmill-prod-embedding-AbC123"
FILLED_IN = {
    "UserAgent": "AcmeBot/1.0 (+https://acme.org/bot)",
    "MembershipUrl": "https://membership.acme.org/v2",
    "EmbeddingBaseUrl": "https://embeddings.acme.org/v1",
    "DataPlane": "aurora",
}
"""What an operator writes for each REPLACE-ME."""
ADDED = {
    "AlarmTopicArn": "arn:aws:sns:eu-west-1:123456789012:indexmill-prod",
    "EmbeddingApiKeySecretArn": SECRET,
    "DomainRates": "*=1:3,docs.acme.org=5,*.example.com=unlimited",
    "InternalCidrs": "192.0.2.0/24,198.51.100.0/25",
    "QuotaFree": "max_active=2,max_per_hour=120,job_cost=0.05",
    "Prices": "sqs_request=0.4,s3_write=5",
    "FairShareScraper": "capacity=4000,floor=100",
    "AllowedOrigins": "https://app.acme.org,http://localhost:3000",
    "SubnetIds": "subnet-0a1b,subnet-2c3d",
    "EdgeDomainName": "api.acme.org",
    "EdgeCertificateArn": "arn:aws:acm:eu-west-1:123456789012:certificate/0a1b-2c3d",
    "ReleaseId": "2026-11-24_a91fdd7",
    "UserAgent": "acme-bot/2 (search; +http://acme.org/bot; v2)",
}
"""Values with each kind of character that parameters need: spaces, commas, equals signs, stars, slashes."""
TAKEN_BACK = """'AlarmTopicArn=""'"""


def edited(changes: dict[str, str]) -> str:
    """Return samconfig.toml with each REPLACE-ME filled in, and further parameters in each environment."""
    values = {**FILLED_IN, **changes}
    text = re.sub(r"(\w+)=(\"?)REPLACE-ME", lambda m: f"{m[1]}={m[2]}{values[m[1]]}", CONFIG)
    further = "".join(f"    '{name}=\"{value}\"',\n" for name, value in changes.items())
    return text.replace("\n]\n", f"\n{further}]\n")


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return what SAM makes of each form of the file, by form and environment: read in one process."""
    folder = tmp_path_factory.mktemp("samconfig")
    unquoted = CONFIG.replace('UserAgent="REPLACE-ME"', f"UserAgent={FILLED_IN['UserAgent']}")
    forms = {
        "committed": CONFIG,
        "filled in": edited({}),
        "added to": edited(ADDED),
        "taken back": CONFIG.replace("parameter_overrides = [", f"parameter_overrides = [{TAKEN_BACK},"),
        "empty": CONFIG.replace("parameter_overrides = [", 'parameter_overrides = ["AlarmTopicArn=",'),
        "unquoted": unquoted,
    }
    # SAM parses the template beside it with every command: ours takes it a second each time.
    (folder / "template.yaml").write_text("Resources: {}\n", encoding="utf-8")
    commands = []
    for form, text in forms.items():
        (folder / f"{form}.toml").write_text(text, encoding="utf-8")
        for name in ENVIRONMENTS:
            file = str(folder / f"{form}.toml")
            commands.append(["deploy", "--config-file", file, "--config-env", name])
    answers = iter(sam.parsed(commands, folder))
    return {form: {name: next(answers) for name in ENVIRONMENTS} for form in forms}


def overrides(answer: dict[str, Any]) -> dict[str, str]:
    assert "error" not in answer, answer
    found: dict[str, str] = answer["options"]["parameter_overrides"]
    return found


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_an_environment_that_is_filled_in_is_what_the_template_takes(
    read: dict[str, dict[str, Any]], environment: str
) -> None:
    given = overrides(read["filled in"][environment])
    written = {name: value for name, value in FILLED_IN.items() if name in given}
    assert {name: given[name] for name in written} == written
    values = parameter_values(template()["Parameters"], given)
    resolver = Resolver(values, conditions=template()["Conditions"])
    for name, rule in template()["Rules"].items():
        for assertion in rule["Assertions"]:
            assert resolver.resolve(assertion["Assert"]), name


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_what_the_docs_say_to_add_reaches_the_template_whole(
    read: dict[str, dict[str, Any]], environment: str
) -> None:
    given = overrides(read["added to"][environment])
    assert {name: given[name] for name in ADDED} == ADDED
    parameter_values(template()["Parameters"], given)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_until_it_is_filled_in_it_reads_but_the_template_refuses_it(
    read: dict[str, dict[str, Any]], environment: str
) -> None:
    given, declared = overrides(read["committed"][environment]), template()["Parameters"]
    assert {name for name, body in declared.items() if "Default" not in body} <= set(given)
    with pytest.raises(ParameterError, match="REPLACE-ME"):
        parameter_values(declared, given)


def test_sam_refuses_an_empty_value_and_cuts_one_without_quotes_at_its_space(
    read: dict[str, dict[str, Any]],
) -> None:
    """So the tests above can fail: these are the two forms that stopped a deployment."""
    assert "AlarmTopicArn= is not a valid format" in read["empty"]["prod"]["error"]
    assert overrides(read["unquoted"]["prod"])["UserAgent"] == "AcmeBot/1.0"


@pytest.mark.parametrize(
    ("environment", "stage"), [("default", "dev"), ("staging", "staging"), ("prod", "prod")]
)
def test_each_environment_is_a_stack_of_its_own_that_sam_may_make(
    read: dict[str, dict[str, Any]], environment: str, stage: str
) -> None:
    options = read["committed"][environment]["options"]
    assert (overrides(read["committed"][environment])["Stage"], options["stack_name"]) == (
        stage,
        f"indexmill-{stage}",
    )
    # Roles, and the transforms of the nested stacks.
    assert set(options["capabilities"]) == {"CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"}
    assert options["resolve_s3"] is True
    assert options["confirm_changeset"] is (stage != "dev")


def test_a_parameter_that_is_not_listed_keeps_its_value_until_it_is_taken_back(
    read: dict[str, dict[str, Any]],
) -> None:
    script = (
        "import json; from samcli.commands.deploy.deploy_context import DeployContext as D;"
        "print(json.dumps(D.merge_parameters({'Parameters': {'Edge': {'Default': 'none'}}}, {})))"
    )
    done = subprocess.run([str(sam.PYTHON), "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [{"ParameterKey": "Edge", "UsePreviousValue": True}]
    assert overrides(read["taken back"]["prod"])["AlarmTopicArn"] == ""
    assert f"`{TAKEN_BACK}`" in PAGE


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_lint_rules_read_the_same_values_as_sam(
    read: dict[str, dict[str, Any]], environment: str, tmp_path: Path
) -> None:
    (tmp_path / "template.yaml").write_text((ROOT / "template.yaml").read_text(encoding="utf-8"))
    (tmp_path / "samconfig.toml").write_text(edited(ADDED), encoding="utf-8")
    found = Source(str(tmp_path / "template.yaml")).parameter_sets()[f"samconfig's {environment}"]
    given = overrides(read["added to"][environment])
    assert {name: found[name] for name in given} == given


def test_production_has_a_web_acl_and_reserved_executions(read: dict[str, dict[str, Any]]) -> None:
    given = overrides(read["committed"]["prod"])
    assert given["Edge"] == "waf"
    assert int(given["ApiReservedConcurrency"]) > 0
    assert int(given["StreamReservedConcurrency"]) > 0
    source = Source(str(ROOT / "template.yaml"))
    together = reserved(source, source.parameter_sets()["samconfig's prod"])
    assert f"The set for `prod` reserves {together} of them" in PAGE


def test_the_form_that_the_docs_show_for_the_user_agent_is_the_one_that_is_tested() -> None:
    shown = re.findall(r"'UserAgent=\"[^\"]+\"'", PAGE)
    assert shown
    assert {shlex.split(each)[0] for each in shown} == {f'UserAgent="{FILLED_IN["UserAgent"]}"'}

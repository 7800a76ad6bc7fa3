"""Commands of docs/deploying.md, parsed by SAM CLI itself and by botocore's models of AWS's services."""

from __future__ import annotations

import re
import shlex
from typing import Any

import botocore.session
import jmespath
import pytest
from botocore import xform_name
from botocore.model import OperationModel, Shape

from tests.support import sam
from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
GLOBAL = {"query", "output", "region", "profile", "cli-binary-format"}
"""Options of each command of aws."""
SERVICES = {"s3api": "s3"}
"""The names of services that aws has of its own."""
RENAMED = {("sns", "subscribe"): ("notification-endpoint", "endpoint")}
"""The options, as --endpoint-url is for all commands."""
POSITIONAL = {("lambda", "invoke"): 1}
"""Words without an option that a command takes: here the file of the answer."""


def commands(program: str, page: str = PAGE) -> list[list[str]]:
    """Return the words of each command of `program` in the page, from blocks of code and then from lines."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", rest)]
    begin = re.compile(rf"(?:\.venv-sam/bin/)?{program} [a-z]")
    kept = [
        re.sub(r"<[^<>]+>", "PLACEHOLDER", line).partition(" > ")[0] for line in lines if begin.match(line)
    ]
    return [shlex.split(line)[1:] for line in kept]


AWS = commands("aws")


def options(rest: list[str], members: dict[str, Any]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the options with their values, and the words that belong to none."""
    given: dict[str, list[str]] = {}
    loose: list[str] = []
    for word in rest:
        if word.startswith("--"):
            given[word[2:]] = []
        elif given and (word == "…" or not list(given.values())[-1] or _takes_many(members, list(given)[-1])):
            list(given.values())[-1].append(word)
        else:
            loose.append(word)
    return given, loose


def problems(words: list[str]) -> list[str]:
    """Return what botocore's model of the service knows to be wrong with a command."""
    service, operation, *rest = words
    service = SERVICES.get(service, service)
    session = botocore.session.Session()
    if service not in session.get_available_services():
        return [f"no service {service}"]
    service_model = session.get_service_model(service)
    operations = {xform_name(name, "-"): name for name in service_model.operation_names}
    if operation not in operations:
        return [f"no operation {operation}"]
    model = service_model.operation_model(operations[operation])
    shape = model.input_shape
    members = {xform_name(name, "-"): body for name, body in shape.members.items()} if shape else {}
    required = {xform_name(name, "-") for name in shape.required_members} if shape else set()
    given, loose = options(rest, members)
    if (service, operation) in RENAMED:
        own, models = RENAMED[service, operation]
        given[models] = given.pop(own, [])
    found = [f"--{name} is missing" for name in sorted(required - given.keys())]
    found += query_problems(" ".join(given.get("query", ())), model)
    for name in given.keys() - GLOBAL:
        found += value_problems(name, given[name], members.get(name) or members.get(name.removeprefix("no-")))
    if len(loose) != POSITIONAL.get((service, operation), 0):
        found.append(f"words without an option: {loose}")
    return found


def value_problems(name: str, values: list[str], body: Shape | None) -> list[str]:
    """Return what is wrong with an option: its name, that it has a value or none, one that is not allowed."""
    if body is None:
        return [f"no option --{name}"]
    if (body.type_name == "boolean") == bool(values):
        return [f"--{name} has {'a' if values else 'no'} value"]
    allowed = getattr(body, "enum", None) or values
    return [f"--{name} is {each}, none of {allowed}" for each in values if each not in allowed]


def query_problems(query: str, model: OperationModel) -> list[str]:
    """Return what is wrong with a --query: its syntax, or a field that no answer of the operation has."""
    if not query:
        return []
    try:
        parsed = jmespath.compile(query).parsed
    except jmespath.exceptions.JMESPathError as error:
        return [f"--query {query}: {error}"]
    known = _names(model.output_shape) if model.output_shape else set()
    return [f"the answer has no {name}" for name in _fields(parsed) if name not in known]


def _fields(node: dict[str, Any]) -> list[str]:
    own = [str(node["value"])] if node["type"] == "field" else []
    return own + [name for child in node["children"] for name in _fields(child)]


def _names(shape: Shape, above: tuple[str, ...] = ()) -> set[str]:
    """Return the names of all members below a shape."""
    if shape.name in above:
        return set()
    below = (*above, shape.name)
    if shape.type_name == "list":
        return _names(shape.member, below)
    members = shape.members if shape.type_name == "structure" else {}
    return set(members).union(*(_names(each, below) for each in members.values()))


def _takes_many(members: dict[str, Any], name: str) -> bool:
    return getattr(members.get(name), "type_name", "") == "list"


def test_the_page_has_commands() -> None:
    assert len(AWS) > 20
    assert len(commands("sam")) >= 1


@pytest.mark.parametrize("words", AWS, ids=lambda words: " ".join(words)[:120])
def test_a_command_of_aws_is_one(words: list[str]) -> None:
    # A name alone, as a part of a sentence, says nothing of its options.
    complete = any(word.startswith("--") for word in words)
    assert [each for each in problems(words) if complete or "missing" not in each] == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("rds modify-db-cluster --manage-master-user-password", "--db-cluster-identifier is missing"),
        ("rds modify-db-cluster --db-cluster-identifier x --rotate-password", "no option --rotate-password"),
        ("rds modify-db-cluster --db-cluster-identifier x --apply-immediately yes", "has a value"),
        ("rds modify-clusters --db-cluster-identifier x", "no operation modify-clusters"),
        ("cloudformation get-template --stack-name x --template-stage Procesed", "none of"),
        ("lambda get-account-settings --query AccountLimits.Total", "the answer has no AccountLimits"),
        ("s3api list-buckets --query Buckets[?Name", "--query Buckets[?Name"),
        ("lambda invoke --function-name x", "words without an option"),
    ],
)
def test_a_wrong_command_is_found(line: str, problem: str) -> None:
    assert any(problem in each for each in problems(line.split()))


def test_a_restore_takes_names_that_are_free_and_gives_the_proxy_its_database() -> None:
    """RDS refuses a name that is taken, and a second target for a proxy."""
    server = {"cluster": {"indexmill-prod"}, "instance": {"indexmill-prod-writer"}}
    target: str | None = "indexmill-prod"
    section = PAGE.split("\n## Restore\n")[1].split("\n## ")[0]
    for service, operation, *rest in commands("aws", section):
        given = dict(zip(rest[::2], rest[1::2], strict=False))
        kind = "cluster" if "cluster" in operation else "instance"
        name = given.get(f"--db-{kind}-identifier", "")
        if operation in {"deregister-db-proxy-targets", "register-db-proxy-targets"}:
            database = given["--db-cluster-identifiers"]
            assert target == (database if operation.startswith("de") else None)
            target = None if target else database
            assert target is None or target in server["cluster"]
        elif operation.startswith(("restore-", "create-")) and service == "rds":
            assert name not in server[kind]
            server[kind].add(name)
        elif operation.startswith("modify-"):
            new = given.get(f"--new-db-{kind}-identifier", name)
            server[kind].remove(name)
            assert new not in server[kind]
            server[kind].add(new)
    assert target == "indexmill-prod"
    assert server["cluster"] == {"indexmill-prod", "indexmill-prod-damaged"}
    assert server["instance"] == {"indexmill-prod-writer", "indexmill-prod-damaged-writer"}


@pytest.mark.skipif(not sam.PYTHON.exists(), reason=sam.NEEDED)
def test_sam_takes_its_commands_and_refuses_wrong_ones() -> None:
    given = commands("sam")
    *answers, wrong, unknown = sam.parsed(
        [*given, ["deploy", "--disable-rollbacks"], ["deploy", "--config-env", "production"]]
    )
    assert "deploy" in {words[0] for words in given}
    assert [each for each in answers if "error" in each] == []
    assert "No such option" in wrong["error"]
    assert "Missing option '--stack-name'" in unknown["error"]

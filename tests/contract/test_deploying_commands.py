"""Commands of docs/deploying.md, parsed by SAM CLI itself and by botocore's models of AWS's services."""

from __future__ import annotations

import re
import shlex
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

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


def commands(program: str) -> list[list[str]]:
    """Return the words of each command of `program` in the page, from code in a line and in blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
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
    model = session.get_service_model(service)
    operations = {xform_name(name, "-"): name for name in model.operation_names}
    if operation not in operations:
        return [f"no operation {operation}"]
    shape = model.operation_model(operations[operation]).input_shape
    members = {xform_name(name, "-"): body for name, body in shape.members.items()} if shape else {}
    required = {xform_name(name, "-") for name in shape.required_members} if shape else set()
    given, loose = options(rest, members)
    if (service, operation) in RENAMED:
        own, models = RENAMED[service, operation]
        given[models] = given.pop(own, [])
    found = [f"--{name} is missing" for name in sorted(required - given.keys())]
    for name, values in given.items():
        body = members.get(name) or members.get(name.removeprefix("no-"))
        if name in GLOBAL:
            continue
        if body is None:
            found.append(f"no option --{name}")
        elif (body.type_name == "boolean") == bool(values):
            found.append(f"--{name} has {'a' if values else 'no'} value")
    if len(loose) != POSITIONAL.get((service, operation), 0):
        found.append(f"words without an option: {loose}")
    return found


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
        ("lambda invoke --function-name x", "words without an option"),
    ],
)
def test_a_wrong_command_is_found(line: str, problem: str) -> None:
    assert any(problem in each for each in problems(line.split()))


@pytest.mark.skipif(not sam.PYTHON.exists(), reason=sam.NEEDED)
def test_sam_takes_its_commands_and_refuses_wrong_ones() -> None:
    given = commands("sam")
    filled = [[*words, "--parameter-overrides", "Stage=dev"] for words in given if words[0] == "deploy"]
    *answers, wrong = sam.parsed([*filled, ["deploy", "--disable-rollbacks"]])
    assert filled
    assert [each for each in answers if "error" in each] == []
    assert "No such option" in wrong["error"]

from __future__ import annotations

import pytest

from local.template.parameters import ParameterError, as_references, parameter_values, parse_overrides

DECLARED = {
    "Stage": {"Type": "String", "Default": "dev", "AllowedPattern": "[a-z]+"},
    "Level": {"Type": "String", "Default": "INFO", "AllowedValues": ["INFO", "DEBUG"]},
    "Workers": {"Type": "Number", "Default": 10, "MinValue": 2, "MaxValue": 20},
    "Subnets": {"Type": "CommaDelimitedList", "Default": "a,b"},
}


def test_defaults_are_text() -> None:
    values = parameter_values(DECLARED, {})
    assert values == {"Stage": "dev", "Level": "INFO", "Workers": "10", "Subnets": "a,b"}


def test_an_override_wins() -> None:
    values = parameter_values(DECLARED, {"Workers": "3", "Stage": "prod"})
    assert (values["Workers"], values["Stage"], values["Level"]) == ("3", "prod", "INFO")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Workrs", "3", "no parameter Workrs; it has Workers"),
        ("Nothing", "3", "no parameter Nothing; it has Level, Stage, Subnets, Workers"),
        ("Stage", "Prod", "does not match"),
        ("Stage", "prod\n", "does not match"),
        ("Level", "LOUD", "none of INFO, DEBUG"),
        ("Workers", "many", "no number"),
        ("Workers", "1", "outside 2 to 20"),
        ("Workers", "21", "outside 2 to 20"),
    ],
)
def test_a_wrong_override_is_refused_by_name(name: str, value: str, expected: str) -> None:
    with pytest.raises(ParameterError, match=expected):
        parameter_values(DECLARED, {name: value})


def test_a_parameter_without_default_needs_a_value() -> None:
    with pytest.raises(ParameterError, match="parameter Key has no default"):
        parameter_values({"Key": {"Type": "String"}}, {})
    assert parameter_values({"Key": {"Type": "String"}}, {"Key": ""}) == {"Key": ""}


def test_references_to_lists_are_lists() -> None:
    assert as_references(DECLARED, parameter_values(DECLARED, {})) == {
        "Stage": "dev",
        "Level": "INFO",
        "Workers": "10",
        "Subnets": ["a", "b"],
    }


def test_key_value_pairs_are_read() -> None:
    assert parse_overrides(["A=1", "B=x=y", "C="]) == {"A": "1", "B": "x=y", "C": ""}


@pytest.mark.parametrize("text", ["A", "=1", ""])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        parse_overrides([text])

"""E9001, E9002, E9003, E9006 and E9008, each on a template that is right but for one thing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.rules.linting import SCALING, findings, good_template

STAGING = '[staging.deploy.parameters]\nparameter_overrides = ["WorkTimeout=61"]\n'
AS_TEXT = '[prod.deploy.parameters]\nparameter_overrides = "Stage=prod WorkTimeout=61"\n'
FITTING = '[prod.deploy.parameters]\nparameter_overrides = ["WorkTimeout=61", "WorkVisibility=366"]\n'


def rules(found: list[tuple[str, int]]) -> set[str]:
    return {rule for rule, _ in found}


def test_a_right_template_passes(tmp_path: Path) -> None:
    assert findings(tmp_path, good_template()) == []


def test_visibility_below_six_times_the_timeout_is_found_at_its_queue(tmp_path: Path) -> None:
    template = good_template().replace("Default: 360", "Default: 359")
    line = template.splitlines().index("  Work:") + 1
    (found,) = findings(tmp_path, template)
    assert found[0] == "E9001"
    assert line < found[1] < line + 4


@pytest.mark.parametrize("samconfig", [STAGING, AS_TEXT])
def test_a_parameter_set_of_samconfig_is_checked_too(tmp_path: Path, samconfig: str) -> None:
    assert rules(findings(tmp_path, good_template(), samconfig)) == {"E9001"}


def test_a_parameter_set_that_raises_both_times_passes(tmp_path: Path) -> None:
    assert findings(tmp_path, good_template(), FITTING) == []


def test_the_batching_window_counts_with_the_time_out(tmp_path: Path) -> None:
    window = ", MaximumBatchingWindowInSeconds: 5" + SCALING
    assert rules(findings(tmp_path, good_template(scaling=window))) == {"E9001"}
    fitting = good_template(scaling=window).replace("Default: 360", "Default: 365")
    assert findings(tmp_path, fitting) == []


def test_a_timeout_of_globals_counts(tmp_path: Path) -> None:
    template = good_template().replace("      Timeout: !Ref WorkTimeout\n", "")
    assert findings(tmp_path, template) == []
    late = template.replace("    Runtime: python3.13\n", "    Runtime: python3.13\n    Timeout: 100\n")
    assert rules(findings(tmp_path, late)) == {"E9001"}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 5}\n", ""),
        ("{MessageRetentionPeriod: 1209600}", "{MessageRetentionPeriod: 345600}"),
        ("{MessageRetentionPeriod: 1209600}", "{DelaySeconds: 0}"),
        ("      MessageRetentionPeriod: 1209600\n", ""),
    ],
)
def test_lost_messages_are_found(tmp_path: Path, right: str, wrong: str) -> None:
    template = good_template()
    assert right in template
    assert rules(findings(tmp_path, template.replace(right, wrong))) == {"E9002"}


@pytest.mark.parametrize("scaling", ["", SCALING.replace("5", "1")])
def test_a_source_without_a_bound_is_found(tmp_path: Path, scaling: str) -> None:
    # cfn-lint's own schema refuses a bound of 1 as well; ours must not depend on it.
    assert rules(findings(tmp_path, good_template(scaling=scaling))) == {"E9003"}


def test_a_reserved_concurrency_below_the_sum_is_found(tmp_path: Path) -> None:
    assert findings(tmp_path, good_template("ReservedConcurrentExecutions: 5")) == []
    assert rules(findings(tmp_path, good_template("ReservedConcurrentExecutions: 4"))) == {"E9003"}


CONDITIONAL = "ReservedConcurrentExecutions: !If [Reserves, !Ref Reserved, !Ref AWS::NoValue]"
DECLARED = """\
Parameters:
  Reserved: {Type: Number, Default: 0}
  AccountConcurrency: {Type: Number, Default: 1000}
"""
CONDITIONS = "Conditions:\n  Reserves: !Not [!Equals [!Ref Reserved, '0']]\nResources:\n"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("", set()),
        ('"Reserved=4"', {"E9003"}),
        ('"Reserved=900"', set()),
        ('"Reserved=901"', {"E9008"}),
        ('"Reserved=901", "AccountConcurrency=1001"', set()),
        ('"Reserved=5", "AccountConcurrency=10"', {"E9008"}),
        ('"AccountConcurrency=10"', set()),
    ],
)
def test_reservations_that_do_not_fit_the_account_are_found(
    tmp_path: Path, given: str, found: set[str]
) -> None:
    template = good_template(CONDITIONAL).replace("Parameters:\n", DECLARED)
    template = template.replace("Resources:\n", CONDITIONS)
    samconfig = f"[prod.deploy.parameters]\nparameter_overrides = [{given}]\n"
    assert rules(findings(tmp_path, template, samconfig)) == found


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("{RetentionInDays: 30}", "{LogGroupClass: STANDARD}"),
        ("LoggingConfig: {LogGroup: !Ref Logs}", "MemorySize: 256"),
    ],
)
def test_logs_without_an_end_are_found(tmp_path: Path, right: str, wrong: str) -> None:
    assert rules(findings(tmp_path, good_template().replace(right, wrong))) == {"E9006"}

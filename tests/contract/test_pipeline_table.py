"""The pipeline table is the only source: whatever else names the stages says the same."""

from __future__ import annotations

import re
from typing import Any, get_args

import psycopg
import pytest
import yaml

from indexmill.contracts import messages
from indexmill.contracts.http_actions import RetryRequest
from indexmill.contracts.job import JobStatus, StageCompletePayload
from indexmill.contracts.messages import StageResult, family
from indexmill.contracts.pipeline import BY_NAME, FIRST, STAGES, TRANSITIONS
from indexmill.orchestrator.stages.registry import MODULES
from indexmill.platform.breakers import EMBEDDING_QUERY, NAMES
from local.cli.jobs import Stage as CliStage
from local.cli.jobs import Status as CliStatus
from local.demo.checks import stages_passed
from local.faults.cloud import WORK_QUEUES
from local.faults.invariants.jobs import _ACTIVE, _RESUMED, _STEPS
from local.faults.soak import _KILLED
from local.trace.waiting import _WORKERS as WORKERS
from tests.support.function_env import functions, template
from tools.openapi import TARGET
from tools.stage_migration import CONSTRAINTS

NAMES_IN_ORDER = [stage.name for stage in STAGES]
STATUSES = ["pending", *NAMES_IN_ORDER, "done", "failed"]


def test_each_stage_leads_to_the_next_and_the_last_one_to_done() -> None:
    assert [*TRANSITIONS.values()] == [*NAMES_IN_ORDER[1:], "done"]
    assert NAMES_IN_ORDER[0] == FIRST
    assert BY_NAME[NAMES_IN_ORDER[-1]].publishes


def test_job_statuses_are_the_stages_between_pending_and_the_ends() -> None:
    assert [status.value for status in JobStatus] == STATUSES
    assert [status.value for status in JobStatus if status.terminal] == ["done", "failed"]


def test_every_stage_has_its_module_message_and_result() -> None:
    assert list(MODULES) == NAMES_IN_ORDER
    tasks = {module.TASK for module in MODULES.values()}
    assert len({family(task) for task in tasks}) == len(STAGES)
    results = [found for found in vars(messages).values() if isinstance(found, type)]
    stages = {
        name
        for model in results
        if issubclass(model, StageResult) and model is not StageResult
        for name in get_args(model.model_fields["stage"].annotation)
    }
    assert stages == set(NAMES_IN_ORDER)


def test_requests_take_the_stages_of_the_table() -> None:
    assert list(get_args(StageCompletePayload.model_fields["stage"].annotation)) == NAMES_IN_ORDER
    assert str(RetryRequest.model_fields["failed_stage"].annotation).count("'") == 2 * len(STAGES)
    schemas: dict[str, Any] = yaml.safe_load(TARGET.read_text(encoding="utf-8"))["components"]["schemas"]
    assert schemas["JobStatus"]["enum"] == STATUSES
    assert schemas["StageCompletePayload"]["properties"]["stage"]["enum"] == NAMES_IN_ORDER
    assert schemas["RetryRequest"]["properties"]["failed_stage"]["anyOf"][0]["enum"] == NAMES_IN_ORDER


@pytest.mark.parametrize(("table", "constraint", "column"), CONSTRAINTS)
def test_the_tables_take_what_the_pipeline_table_has(
    database_url: str, table: str, constraint: str, column: str
) -> None:
    statement = (
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND conname = %s"
    )
    with psycopg.connect(database_url) as connection:
        ((definition,),) = connection.execute(statement, (table, constraint)).fetchall()
    assert column in definition
    assert re.findall(r"'([^']+)'::text", definition) == CONSTRAINTS[table, constraint, column]


def test_no_function_of_the_database_lists_the_stages(database_url: str) -> None:
    statement = "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosrc ~ %s"
    listed = f"'({'|'.join(NAMES_IN_ORDER[1:])})'"
    with psycopg.connect(database_url) as connection:
        assert connection.execute(statement, (listed,)).fetchall() == []
        indexed = "SELECT indexname FROM pg_indexes WHERE schemaname = 'public' AND indexdef ~ %s"
        assert connection.execute(indexed, (listed,)).fetchall() == []


def test_the_template_has_queue_dead_letters_and_worker_of_each_stage_with_its_budget() -> None:
    found, parameters = template()["Resources"], template()["Parameters"]
    for stage in STAGES:
        prefix = stage.queue.capitalize()
        assert {f"{prefix}Queue", f"{prefix}Dlq"} <= found.keys()
        worker = functions()[WORKERS[stage.name]]
        assert worker["Timeout"] == {"Ref": f"{prefix}Timeout"}
        assert parameters[f"{prefix}Timeout"]["Default"] == stage.budget_s
        assert parameters[f"{prefix}Visibility"]["Default"] >= 6 * stage.budget_s
        (source,) = (each for each in worker["Events"].values() if each["Type"] == "SQS")
        assert source["Properties"]["Queue"] == {"Fn::GetAtt": [f"{prefix}Queue", "Arn"]}


def test_the_local_cloud_knows_the_stages() -> None:
    assert {stage.name: f"{stage.queue.capitalize()}Queue" for stage in STAGES} == WORK_QUEUES
    assert list(get_args(CliStage)) == NAMES_IN_ORDER
    assert list(get_args(CliStatus)) == STATUSES
    assert {f"{worker}/*" for worker in WORKERS.values()} <= set(_KILLED)


def test_the_invariants_follow_a_job_through_the_stages() -> None:
    assert list(_ACTIVE) == NAMES_IN_ORDER
    assert {
        ("pending", FIRST),
        *TRANSITIONS.items(),
        *((name, "failed") for name in NAMES_IN_ORDER),
    } <= _STEPS
    assert {each for step in _STEPS | _RESUMED for each in step} == {None, *STATUSES}
    assert {to for _, to in _RESUMED} == set(NAMES_IN_ORDER[1:])


def test_the_demo_counts_the_documents_behind_each_stage() -> None:
    passed = [sum(stages_passed([status]).values()) for status in STATUSES]
    assert passed == [0, *range(len(STAGES)), len(STAGES), len(STAGES)]


def test_each_breaker_pauses_the_stages_that_name_it_and_the_callers_own_none() -> None:
    assert {name for stage in STAGES for name in stage.breakers} == {*NAMES} - {EMBEDDING_QUERY}

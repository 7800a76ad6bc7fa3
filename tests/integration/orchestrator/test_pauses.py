"""A pause that would hold nothing back is refused where it is made."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.errors import CheckViolation

from indexmill.contracts.pipeline import EVERY_STAGE, STAGES
from indexmill.platform.postgres.database import Connection

pytestmark = pytest.mark.integration

PAUSE = "INSERT INTO pauses (stage, reason, paused_by) VALUES (%s, 'a test', 'me')"


@pytest.fixture
def operator(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("stage", [EVERY_STAGE, *(stage.name for stage in STAGES)])
def test_what_has_a_switch_can_be_paused(operator: Connection, stage: str) -> None:
    operator.execute(PAUSE, (stage,))


@pytest.mark.parametrize("stage", ["pending", "embeding", ""])
def test_an_unknown_stage_cannot_be_paused_and_the_error_names_it(operator: Connection, stage: str) -> None:
    with pytest.raises(CheckViolation, match="only_stages_or_all_can_be_paused"):
        operator.execute(PAUSE, (stage,))

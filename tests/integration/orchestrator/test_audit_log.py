"""The sweeper writes each event of the table into the log: all of them, in order, none twice."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from indexmill.orchestrator.store.sweep import KeptEvent, SweepStore
from indexmill.platform.postgres.database import Database

pytestmark = [pytest.mark.integration, pytest.mark.shows("S20")]

ADD = "INSERT INTO audit_events (event, caller_id, fields) VALUES ('job_submitted', %s, '{}')"


@pytest.fixture
def sweeps(database_url: str) -> Iterator[list[SweepStore]]:
    databases = [Database(database_url) for _ in range(2)]
    yield [SweepStore(each) for each in databases]
    for each in databases:
        each.close()


def logged(sweep: SweepStore, limit: int = 100) -> list[str]:
    """Return the callers of the events that are written now."""
    found: list[KeptEvent] = []
    assert sweep.log_audit(found.append, limit) == len(found)
    return [each.caller_id for each in found]


def test_an_event_is_written_when_every_earlier_transaction_has_ended(
    database_url: str, sweeps: list[SweepStore]
) -> None:
    """A row that is committed late has a lower number than rows that were written before it was seen."""
    with psycopg.connect(database_url) as slow, psycopg.connect(database_url, autocommit=True) as quick:
        quick.execute(ADD, ["first"])
        slow.execute(ADD, ["slow"])
        quick.execute(ADD, ["quick"])
        assert logged(sweeps[0]) == ["first"]
        slow.commit()
    assert logged(sweeps[1]) == ["slow", "quick"]
    assert logged(sweeps[0]) == []


def test_a_long_backlog_is_written_in_parts(database_url: str, sweeps: list[SweepStore]) -> None:
    with psycopg.connect(database_url) as connection:
        connection.cursor().executemany(ADD, [[str(number)] for number in range(5)])
    assert [logged(sweeps[0], 2) for _ in range(4)] == [["0", "1"], ["2", "3"], ["4"], []]


def test_of_two_sweepers_one_writes(database_url: str, sweeps: list[SweepStore]) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(ADD, ["one"])
    found: list[str] = []

    def write(event: KeptEvent) -> None:
        found.append(event.caller_id)
        assert logged(sweeps[1]) == []

    assert sweeps[0].log_audit(write, 10) == 1
    assert found == ["one"]
    assert logged(sweeps[1]) == []


def test_an_event_that_could_not_be_written_is_written_at_the_next_tick(
    database_url: str, sweeps: list[SweepStore]
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(ADD, ["one"])

    def write(_event: KeptEvent) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        sweeps[0].log_audit(write, 10)
    assert logged(sweeps[0]) == ["one"]

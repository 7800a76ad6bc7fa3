"""Recognition of statements that pin a session of RDS Proxy."""

from __future__ import annotations

import pytest

from tests.support.pinning import LONGEST_TEXT, pins

PINNING = {
    "SET statement_timeout = 5": "a parameter is set",
    "set local ivfflat.probes = 5": "a parameter is set",
    "SELECT 1; SET LOCAL enable_sort = off": "a parameter is set",
    "SELECT set_config('a.b', 'c', true)": "a parameter is set",
    "SELECT pg_catalog.Set_Config ('a.b', 'c', true)": "a parameter is set",
    "RESET ALL": "a parameter is reset",
    "PREPARE p AS SELECT 1": "a prepared statement",
    "EXECUTE p": "a prepared statement",
    "DEALLOCATE ALL": "a prepared statement",
    "DISCARD ALL": "session state is discarded",
    "DECLARE c CURSOR FOR SELECT 1": "a cursor",
    "-- why\nLISTEN jobs": "a notification channel",
    "/* why */ UNLISTEN *": "a notification channel",
    "LOAD 'auto_explain'": "a library is loaded",
    "CREATE TEMP TABLE t (a INT)": "a temporary object",
    "CREATE TEMPORARY SEQUENCE s": "a temporary object",
    "CREATE OR REPLACE TEMP VIEW v AS SELECT 1": "a temporary object",
    "SELECT 1 INTO TEMP t": "a temporary object",
    "CREATE TABLE pg_temp.t (a INT)": "a temporary object",
    "SELECT nextval('generation_seq')": "a sequence",
    "INSERT INTO t SELECT setval('s', 1)": "a sequence",
    "SELECT currval('s')": "a sequence",
    "SELECT lastval()": "a sequence",
    "DO $$ BEGIN PERFORM nextval('s'); END $$": "a sequence",
    "SELECT pg_advisory_lock(1)": "a session's advisory lock",
    "SELECT pg_try_advisory_lock_shared(1)": "a session's advisory lock",
    "SELECT pg_advisory_unlock_all()": "a session's advisory lock",
}
HARMLESS = [
    "SELECT 1",
    "BEGIN",
    "set",
    "COMMIT",
    "UPDATE jobs SET status = 'set'",
    "INSERT INTO t VALUES ('SET a = b; SET c = d')",
    "SELECT 'it''s; SET a = b'",
    "SELECT 1 -- SET a = b\n",
    "SELECT next_generation()",
    "SELECT pg_advisory_xact_lock(1)",
    "SELECT pg_try_advisory_xact_lock(1)",
    "COPY chunks FROM STDIN (FORMAT BINARY)",
    "NOTIFY jobs",
    "LOCK TABLE jobs",
    "SELECT current_setting('statement_timeout')",
    "SHOW statement_timeout",
    "SELECT temporary FROM created",
]


@pytest.mark.parametrize(("statement", "why"), PINNING.items())
def test_a_pinning_statement_is_recognised(statement: str, why: str) -> None:
    assert pins(statement) == why


@pytest.mark.parametrize("statement", HARMLESS)
def test_a_harmless_statement_is_not(statement: str) -> None:
    assert pins(statement) is None


def test_a_name_or_a_long_text_pins_whatever_is_said() -> None:
    assert pins("SELECT 1", name="_pg3_0") == "a prepared statement"
    assert pins("SELECT '" + "x" * LONGEST_TEXT + "'") == "a text of more than 16384 bytes"
    assert pins("SELECT '" + "x" * (LONGEST_TEXT - 9) + "'") is None
    assert pins("SELECT '" + "é" * (LONGEST_TEXT // 2) + "'") is not None

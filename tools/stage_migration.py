"""Print the migration that lets the tables name the stages of the pipeline table.

Run `python tools/stage_migration.py > sql/NNNN_name.sql` after a row was added to `contracts/pipeline.py`.
The new constraints are not validated: each row satisfied a narrower one.
"""

from __future__ import annotations

import sys

from indexmill.contracts.job import JobStatus
from indexmill.contracts.pipeline import STAGES

CONSTRAINTS = {
    ("jobs", "jobs_status_check", "status"): [status.value for status in JobStatus],
    ("pauses", "only_stages_or_all_can_be_paused", "stage"): ["*", *(stage.name for stage in STAGES)],
}
"""Allowed values, by table, constraint and column."""


def migration() -> str:
    """Return the statements."""
    lines = ["-- The stages of the pipeline table: more than before, so the release before runs as well."]
    for (table, constraint, column), values in CONSTRAINTS.items():
        allowed = ", ".join(f"'{value}'" for value in values)
        lines += [
            f"ALTER TABLE {table} DROP CONSTRAINT {constraint};",
            f"ALTER TABLE {table} ADD CONSTRAINT {constraint}",
            f"    CHECK ({column} IN ({allowed})) NOT VALID;",
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(migration())

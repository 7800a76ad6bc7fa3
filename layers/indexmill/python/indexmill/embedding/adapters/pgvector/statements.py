"""SQL statements of the vector index, from index.sql."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from indexmill.platform.postgres.database import load

ROW_RANGES: Final = 8
_STRIPES: Final = 16
MOST_TIED: Final = 300
"""Candidates that a list is made of: those beyond its length count where its end is among equal scores."""

SQL: Final = load(Path(__file__).parent, {"stripes": _STRIPES, "range_limit": 64, "most_tied": MOST_TIED})

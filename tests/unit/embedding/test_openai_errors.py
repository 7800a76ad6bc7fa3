from __future__ import annotations

from datetime import UTC, datetime

import pytest

from indexmill.embedding.adapters.openai_embedder import translated, wait_asked_for

NOW = datetime(2026, 3, 14, 10, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None), ("", None), ("0", None), ("-5", None), ("nan", None), ("soon", None),
        ("7", 7), ("1.2", 2), ("0.01", 1), ("3600", 3600), ("99999999", 43_200), ("inf", 43_200),
        ("Sat, 14 Mar 2026 10:23:00 GMT", 60), ("Sat, 14 Mar 2026 10:23:00 -0000", 60),
        ("Sat, 14 Mar 2026 10:21:00 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_read_as_seconds_or_date_and_bounded(header: str | None, seconds: int | None) -> None:
    assert wait_asked_for(header, NOW) == seconds


def test_an_error_that_is_not_the_clients_is_left_alone() -> None:
    assert translated(RuntimeError("ours"), NOW) is None

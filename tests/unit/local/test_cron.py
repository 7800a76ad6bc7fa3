"""EventBridge's cron dialect: the examples of AWS's documentation, and edge cases."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.template.cron import CronError, parse_cron

FRIDAY = datetime(2027, 1, 1, tzinfo=UTC)


def times(expression: str, count: int, at: datetime = FRIDAY) -> list[str]:
    cron, found = parse_cron(expression), []
    for _ in range(count):
        due = cron.after(at)
        if due is None:
            break
        found.append(f"{due:%a %d %b %Y %H:%M}")
        at = due
    return found


@pytest.mark.parametrize(
    ("expression", "due"),
    [
        # The examples of AWS's documentation.
        ("0 10 * * ? *", ["Fri 01 Jan 2027 10:00", "Sat 02 Jan 2027 10:00"]),
        ("15 12 * * ? *", ["Fri 01 Jan 2027 12:15", "Sat 02 Jan 2027 12:15"]),
        ("0 18 ? * MON-FRI *", ["Fri 01 Jan 2027 18:00", "Mon 04 Jan 2027 18:00"]),
        ("0 8 1 * ? *", ["Fri 01 Jan 2027 08:00", "Mon 01 Feb 2027 08:00"]),
        ("0/15 * * * ? *", ["Fri 01 Jan 2027 00:15", "Fri 01 Jan 2027 00:30"]),
        ("0/10 * ? * MON-FRI *", ["Fri 01 Jan 2027 00:10", "Fri 01 Jan 2027 00:20"]),
        ("0/5 8-17 ? * MON-FRI *", ["Fri 01 Jan 2027 08:00", "Fri 01 Jan 2027 08:05"]),
        ("0 9 ? * 2#1 *", ["Mon 04 Jan 2027 09:00", "Mon 01 Feb 2027 09:00"]),
        ("15 10 ? * 6L 2027-2028", ["Fri 29 Jan 2027 10:15", "Fri 26 Feb 2027 10:15"]),
        # The wildcards as documented.
        ("1/10 0 1 * ? *", ["Fri 01 Jan 2027 00:01", "Fri 01 Jan 2027 00:11", "Fri 01 Jan 2027 00:21"]),
        (
            "0 0 1 jan,FEB,Mar ? *",
            ["Mon 01 Feb 2027 00:00", "Mon 01 Mar 2027 00:00", "Sat 01 Jan 2028 00:00"],
        ),
        ("0 0 ? * 3#2 *", ["Tue 12 Jan 2027 00:00", "Tue 09 Feb 2027 00:00"]),
        ("0 0 ? * TUE#5 *", ["Tue 30 Mar 2027 00:00", "Tue 29 Jun 2027 00:00"]),
        ("0 0 3W * ? *", ["Mon 04 Jan 2027 00:00", "Wed 03 Feb 2027 00:00", "Wed 03 Mar 2027 00:00"]),
        ("0 0 L * ? *", ["Sun 31 Jan 2027 00:00", "Sun 28 Feb 2027 00:00", "Wed 31 Mar 2027 00:00"]),
        ("0 0 ? * L *", ["Sat 02 Jan 2027 00:00", "Sat 09 Jan 2027 00:00"]),
        ("0 0 ? * 1,7 *", ["Sat 02 Jan 2027 00:00", "Sun 03 Jan 2027 00:00", "Sat 09 Jan 2027 00:00"]),
        # Edge cases: no other month for W, no day that a month lacks, no past year.
        ("0 0 1W * ? *", ["Mon 01 Feb 2027 00:00", "Mon 01 Mar 2027 00:00", "Thu 01 Apr 2027 00:00"]),
        ("0 0 1W 5 ? *", ["Mon 03 May 2027 00:00"]),
        ("0 0 31W * ? *", ["Fri 29 Jan 2027 00:00", "Wed 31 Mar 2027 00:00", "Mon 31 May 2027 00:00"]),
        ("0 0 LW * ? *", ["Fri 29 Jan 2027 00:00", "Fri 26 Feb 2027 00:00"]),
        ("0 0 29 2 ? *", ["Tue 29 Feb 2028 00:00", "Sun 29 Feb 2032 00:00"]),
        ("0 0 29 2 ? 2096-2199", ["Wed 29 Feb 2096 00:00", "Fri 29 Feb 2104 00:00"]),
        ("59 23 31 12 ? 2027", ["Fri 31 Dec 2027 23:59"]),
        ("0 0 30 2 ? *", []),
        ("0 0 1 1 ? 2026", []),
        ("0 0 ? * FRI-MON *", ["Sat 02 Jan 2027 00:00", "Sun 03 Jan 2027 00:00", "Mon 04 Jan 2027 00:00"]),
        ("*/20 5 1-10/9 * ? *", ["Fri 01 Jan 2027 05:00", "Fri 01 Jan 2027 05:20", "Fri 01 Jan 2027 05:40"]),
    ],
)
def test_an_expression_is_due_when_aws_says(expression: str, due: list[str]) -> None:
    assert times(expression, max(3, len(due)))[: len(due)] == due
    assert due or times(expression, 1) == []


def test_hours_may_wrap_after_midnight_as_in_awss_example() -> None:
    found = times("0/30 20-2 ? * MON-FRI *", 14)
    assert found[:6] == [f"Fri 01 Jan 2027 0{time}" for time in ("0:30", "1:00", "1:30", "2:00", "2:30")] + [
        "Fri 01 Jan 2027 20:00"
    ]
    assert found[13] == "Mon 04 Jan 2027 00:00", "midnight belongs to the day that begins"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 10 * * ?", "has 5 fields; AWS wants six: minutes hours day-of-month"),
        ("0 0 10 * * ? *", "has 7 fields"),
        ("0 10 * * * *", "one of day-of-month and day-of-week must be ?"),
        ("0 10 ? * ? *", "one of day-of-month and day-of-week must be ?"),
        ("0 10 1 * MON *", "one of day-of-month and day-of-week must be ?"),
        ("60 10 * * ? *", "'60' is no minute: it is 0-59"),
        ("0 24 * * ? *", "'24' is no hour: it is 0-23"),
        ("0 10 0 * ? *", "'0' is no day of month: it is 1-31"),
        ("0 10 * 13 ? *", "'13' is no month: it is 1-12 or JAN-DEC"),
        ("0 10 * JUNE ? *", "'JUNE' is no month"),
        ("0 10 ? * 0 *", "'0' is no day of week: it is 1-7 or SUN-SAT"),
        ("0 10 * * ? 2200", "'2200' is no year: it is 1970-2199"),
        ("0 10 * * ? 2030-2027", "'2030-2027' is no year: it runs backwards"),
        ("0/0 * * * ? *", "'0/0' is no minute: a step is /1 to /59"),
        ("0/x * * * ? *", "'0/x' is no minute: a step"),
        ("0 10 ? * 2/2 *", "'2/2' is no day of week: it takes no steps"),
        ("? 10 * * ? *", "'?' is no minute"),
        ("1,,2 10 * * ? *", "'' is no minute"),
        ("5- 10 * * ? *", "'5-' is no minute"),
        ("0 10 ? * 3#1,6#3 *", "# is used alone"),
        ("0 10 ? * 3#6 *", "# is used alone, between a day and 1-5"),
        ("0 10 1,15W * ? *", "'1,15W' is no day of month: L, LW and a day with W (3W) are used alone"),
        ("0 10 L-3 * ? *", "are used alone"),
        ("0 10 32W * ? *", "'32W' is no day of month"),
        ("", "has 0 fields"),
    ],
)
def test_what_aws_refuses_is_refused_in_a_sentence(expression: str, expected: str) -> None:
    with pytest.raises(CronError) as caught:
        parse_cron(expression)
    assert expected in str(caught.value)


def test_times_are_utc_whatever_zone_one_asks_in() -> None:
    at = datetime(2027, 1, 1, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    assert parse_cron("0 4 * * ? *").after(at) == datetime(2027, 1, 3, 4, 0, tzinfo=UTC)
    assert parse_cron("0 5 * * ? *").after(at) == datetime(2027, 1, 2, 5, 0, tzinfo=UTC)


@given(
    st.integers(int(FRIDAY.timestamp()), int(FRIDAY.timestamp()) + 10**9),
    st.integers(1, 31),
    st.integers(1, 7),
)
def test_the_next_time_is_later_and_of_the_day_that_was_asked_for(
    second: int, day: int, weekday: int
) -> None:
    at = datetime.fromtimestamp(second, UTC)
    by_date = parse_cron(f"7 3 {day} * ? *").after(at)
    assert by_date is not None
    assert at < by_date <= at + timedelta(days=62)
    assert (by_date.day, by_date.hour, by_date.minute, by_date.second) == (day, 3, 7, 0)
    last = parse_cron(f"7 3 ? * {weekday}L *").after(at)
    assert last is not None
    assert at < last <= at + timedelta(days=36)
    assert last.isoweekday() % 7 + 1 == weekday
    assert last.day > calendar.monthrange(last.year, last.month)[1] - 7

"""EventBridge's cron expressions: minutes, hours, day of month, month, day of week, year; in UTC.

Days of the week are 1 to 7 or SUN to SAT. One of the two day fields is `?`, the other lists the days.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from typing import Final

_DaysOf = Callable[[int, int], Collection[int]]
"""Returns the days of a month, from year and month."""


class CronError(ValueError):
    """Raised for an expression that EventBridge rejects; the message names the part and the valid values."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: str = ""
    """Names of `low`, `low` + 1, …, separated by spaces."""
    steps: bool = True
    wraps: bool = True
    """Whether a range may wrap from `high` to `low`: AWS's own example has the hours 20-2."""

    def values(self, text: str) -> list[int]:
        """Return the values of a list of values, ranges and steps, ascending."""
        found: set[int] = set()
        for part in text.split(","):
            span, slash, step = part.partition("/")
            if slash and not (self.steps and step.isdecimal() and 0 < int(step) <= self.high):
                raise self.refusal(
                    part, f"a step is /1 to /{self.high}" if self.steps else "it takes no steps"
                )
            found.update(self._span(part, span, open_end=bool(slash))[:: int(step) if slash else 1])
        return sorted(found)

    def refusal(self, part: str, why: str = "") -> CronError:
        names = f" or {self.names[:3]}-{self.names[-3:]}" if self.names else ""
        return CronError(f"{part!r} is no {self.name}: {why or f'it is {self.low}-{self.high}{names}'}")

    def value(self, part: str, text: str) -> int:
        """Return one number or name."""
        names = self.names.split()
        if text.upper() in names:
            return self.low + names.index(text.upper())
        if not (text.isdecimal() and text.isascii() and self.low <= int(text) <= self.high):
            raise self.refusal(part)
        return int(text)

    def _span(self, part: str, span: str, *, open_end: bool) -> list[int]:
        whole = list(range(self.low, self.high + 1))
        if span == "*":
            return whole
        first, dash, last = span.partition("-")
        begin = self.value(part, first)
        end = self.value(part, last) if dash else self.high if open_end else begin
        if begin <= end:
            return whole[begin - self.low : end - self.low + 1]
        if not self.wraps:
            raise self.refusal(part, "it runs backwards")
        return whole[begin - self.low :] + whole[: end - self.low + 1]


_MINUTES: Final = _Field("minute", 0, 59)
_HOURS: Final = _Field("hour", 0, 23)
_DATES: Final = _Field("day of month", 1, 31)
_MONTHS: Final = _Field("month", 1, 12, "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")
_WEEKDAYS: Final = _Field("day of week", 1, 7, "SUN MON TUE WED THU FRI SAT", steps=False)
_YEARS: Final = _Field("year", 1970, 2199, wraps=False)


@dataclass(frozen=True, slots=True)
class Cron:
    """Parsed expression; equal to others of the same text."""

    expression: str
    _years: list[int] = field(compare=False, repr=False)
    _months: list[int] = field(compare=False, repr=False)
    _days_of: _DaysOf = field(compare=False, repr=False)
    _times: list[time] = field(compare=False, repr=False)

    def after(self, at: datetime) -> datetime | None:
        """Return the first time later than `at` (an aware time), in UTC; None when there is none."""
        start = at.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        for day in self._days(start.date()):
            for each in self._times:
                found = datetime.combine(day, each, UTC)
                if found >= start:
                    return found
        return None

    def _days(self, start: date) -> Iterator[date]:
        for year, month in product(self._years, self._months):
            if (year, month) >= (start.year, start.month):
                days = sorted(self._days_of(year, month))
                yield from (found for found in (date(year, month, day) for day in days) if found >= start)


def parse_cron(expression: str) -> Cron:
    """Parse the text between the parentheses of `cron(…)`. Raises CronError."""
    fields = expression.split()
    if len(fields) != 6:
        wanted = "minutes hours day-of-month month day-of-week year"
        raise CronError(f"{expression!r} has {len(fields)} fields; AWS wants six: {wanted}")
    minutes, hours, dates, months, weekdays, years = fields
    if (dates == "?") == (weekdays == "?"):
        raise CronError(f"{expression!r}: one of day-of-month and day-of-week must be ?, the other not")
    return Cron(
        expression,
        _YEARS.values(years),
        _MONTHS.values(months),
        _by_weekday(weekdays) if dates == "?" else _by_date(dates),
        [time(hour, minute) for hour in _HOURS.values(hours) for minute in _MINUTES.values(minutes)],
    )


def _by_date(text: str) -> _DaysOf:
    if text.upper() == "L":
        return lambda year, month: [_last(year, month)]
    if text.upper() == "LW":
        return lambda year, month: _nearest_workday(year, month, _last(year, month))
    if near := re.fullmatch(r"(\d+)W", text, re.IGNORECASE):
        wanted = _DATES.value(text, near[1])
        return lambda year, month: _nearest_workday(year, month, wanted)
    if re.search("[LW]", text, re.IGNORECASE):
        raise _DATES.refusal(text, "L, LW and a day with W (3W) are used alone")
    values = _DATES.values(text)
    return lambda year, month: [day for day in values if day <= _last(year, month)]


def _by_weekday(text: str) -> _DaysOf:
    if text.upper() == "L":
        return lambda year, month: _on(year, month, [7])
    if last := re.fullmatch(r"(\w+)L", text, re.IGNORECASE):
        weekday = _WEEKDAYS.value(text, last[1])
        return lambda year, month: _on(year, month, [weekday])[-1:]
    day, mark, number = text.partition("#")
    if mark:
        if number not in ("1", "2", "3", "4", "5"):
            raise _WEEKDAYS.refusal(
                text, "# is used alone, between a day and 1-5 (3#2 is the second Tuesday)"
            )
        weekday, nth = _WEEKDAYS.value(text, day), int(number)
        return lambda year, month: _on(year, month, [weekday])[nth - 1 : nth]
    values = _WEEKDAYS.values(text)
    return lambda year, month: _on(year, month, values)


def _last(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


def _on(year: int, month: int, weekdays: Collection[int]) -> list[int]:
    """Return a function for the days of a month that are one of these weekdays, by AWS's numbers."""
    first = (calendar.monthrange(year, month)[0] + 1) % 7  # days after a Sunday
    return [day for day in range(1, _last(year, month) + 1) if (first + day - 1) % 7 + 1 in weekdays]


def _nearest_workday(year: int, month: int, wanted: int) -> list[int]:
    """Return the nearest workday in the same month; none in a month that does not have the day."""
    workdays = _on(year, month, range(2, 7))
    if wanted > _last(year, month):
        return []
    return [min(workdays, key=lambda day: (abs(day - wanted), day))]

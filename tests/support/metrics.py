"""Metrics that the code under test wrote to its standard output, as CloudWatch would read them."""

from __future__ import annotations

import pytest

from local.metrics.emf import read


def emitted(captured: pytest.CaptureFixture[str], name: str) -> list[tuple[float, dict[str, str]]]:
    """Return the values of one metric since the last look, each with its dimensions but `service`."""
    found = [each for line in captured.readouterr().out.splitlines() for each in read(line)]
    return [
        (value, {key: text for key, text in each.dimensions if key != "service"})
        for each in found
        if each.name == name
        for value in each.values
    ]

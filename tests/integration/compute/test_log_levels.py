"""Lines of the product's own logger, metrics and audit under Lambda's filter by level."""

from __future__ import annotations

import json

import pytest

from local.compute.log_filter import passes
from tests.integration.compute.harness import Lab, call, fault

SPEAKS = """
from indexmill.contracts.identity import CallerContext
from indexmill.platform.observability import Observability

observability = Observability("scraper", level="%s")

def handler(event, context):
    import logging
    logging.getLogger("botocore.parsers").debug("Response body: a secret")
    for level in ("debug", "info", "warning", "error"):
        getattr(observability.log, level)(level)
    observability.emit("job_submitted", CallerContext(caller_id="ann"))
    observability.count("plain")
    observability.count("with_dimension", stage="scraping")
    observability.flush()
"""
LOGGED = ["debug", "info", "warning", "error"]


@pytest.mark.parametrize(
    ("ours", "lambdas", "kept"),
    [("DEBUG", "DEBUG", 4), ("INFO", "INFO", 3), ("WARNING", "WARN", 2), ("ERROR", "ERROR", 1)],
)
async def test_metrics_and_audit_come_out_at_every_level(
    lab: Lab, ours: str, lambdas: str, kept: int
) -> None:
    host = await lab.start(lab.function(SPEAKS % ours, log_level=lambdas))
    await call(host)
    host.flush_logs()
    assert "secret" not in "".join(lab.lines("stdout") + lab.lines("stderr"))
    found = [json.loads(line) for line in lab.lines("stdout")]
    logged = [line for line in found if "message" in line]
    assert [line["message"] for line in logged] == [*LOGGED[-kept:], "job_submitted"]
    assert [line["service"] for line in logged][-1] == "audit"
    metrics = [line["_aws"]["CloudWatchMetrics"][0]["Metrics"][0]["Name"] for line in found if "_aws" in line]
    assert sorted(metrics) == ["plain", "with_dimension"]


@pytest.mark.parametrize(
    ("line", "least", "kept"),
    [
        ("no JSON", "ERROR", True),
        ('{"level": "INFO", "timestamp": "2026-11-22T10:00:00Z"}', "ERROR", False),
        ('{"level": "error", "timestamp": "2026-11-22T10:00:00.5+00:00"}', "ERROR", True),
        ('{"level": "WARNING", "timestamp": "2026-11-22T10:00:00Z"}', "WARN", True),
        # What has no level or no valid time is INFO.
        ('{"_aws": {}}', "WARN", False),
        ('{"_aws": {}}', "INFO", True),
        ('{"level": "ERROR"}', "ERROR", False),
        ('{"level": "ERROR", "timestamp": "yesterday"}', "WARN", False),
        ('{"level": "CRITICAL", "timestamp": "2026-11-22T10:00:00Z"}', "ERROR", False),
        ('{"level": "DEBUG", "timestamp": "2026-11-22T10:00:00Z"}', "INFO", False),
        ('["level"]', "ERROR", True),
    ],
)
def test_what_the_filter_keeps(line: str, least: str, kept: bool) -> None:
    assert passes(line, least) is kept


CANARY = "canary-of-a-query"
NAMES_URLS = """
import logging
from indexmill.platform.observability import Observability

observability = Observability("scraper")
URL = "https://site.example:8443/a/page.html?token=canary-of-a-query&b=(1)'x'#canary-of-a-query"

def handler(event, context):
    library = logging.getLogger("some.library")
    observability.log.warning("of %s", URL)
    deep = {"at": [URL, {URL: 1}], "error": ValueError(URL)}
    observability.log.error("job.rescued", extra={"url": URL, "deep": deep})
    library.warning("asked %s: 200", URL, extra={"url": URL})
    try:
        raise OSError(f"cannot read <{URL}>\\nnor \\"{URL}\\", \\u00e4")
    except OSError as error:
        observability.log.exception("request.failed")
        library.exception("of a library")
    if event["planted"]:
        print(URL)
"""


@pytest.mark.shows("B88")
@pytest.mark.parametrize("planted", [False, True])
async def test_no_line_has_the_query_of_a_url(lab: Lab, planted: bool) -> None:
    host = await lab.start(lab.function(NAMES_URLS))
    await call(host, {"planted": planted})
    host.flush_logs()
    lines = lab.lines("stdout") + lab.lines("stderr")
    assert [CANARY in line for line in lines].count(True) == (1 if planted else 0)
    assert "".join(lines).count("https://site.example:8443/a/page.html") >= 5 + 5
    (rescued,) = (json.loads(line) for line in lines if "job.rescued" in line)
    assert rescued["url"] == "https://site.example:8443/a/page.html"


RAISES = """
from indexmill.platform.log_texts import entry_point

TEXT = 'no "https://site.example/a"b/c?token="canary-of-a-query"#canary-of-a-query" there'

def work(event, context):
    try:
        raise OSError(TEXT)
    except OSError as error:
        raise LookupError(TEXT) from error

handler = %s
"""


@pytest.mark.shows("B88")
@pytest.mark.parametrize("handler", ["entry_point(work)", "work"])
async def test_what_the_runtime_logs_of_an_error_has_no_query(lab: Lab, handler: str) -> None:
    host = await lab.start(lab.function(RAISES % handler))
    result = await call(host)
    host.flush_logs()
    said = "".join(record.message + str(record.more) for record in lab.records) + str(result.payload)
    assert (CANARY in said) is (handler == "work")
    (end,) = (record for record in lab.records if record.message.startswith("END "))
    assert end.more["place"].endswith("code/fn/app.py:10"), "its place in the code stays"
    if handler != "work":
        assert fault(result) == ("LookupError", 'no "https://site.example/a"b/c there')

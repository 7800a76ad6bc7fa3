"""Lines of the product's own logger, metrics and audit under Lambda's filter by level."""

from __future__ import annotations

import json

import pytest

from local.compute.log_filter import passes
from local.stack.function_errors import FunctionErrors
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


OF_LIBRARY = """
import logging
from indexmill.platform.observability import Observability

observability = Observability("scraper")

def handler(event, context):
    observability.log.error("ours")
    for name in ("indexmill.scraper.worker", "indexmill.platform.breakers", "botocore.audit"):
        logging.getLogger(name).warning("by %s", name)
        logging.getLogger(name).info("nothing")
"""


async def test_each_warning_of_a_module_is_one_line_whatever_its_name(lab: Lab) -> None:
    host = await lab.start(lab.function(OF_LIBRARY, log_level="INFO"))
    await call(host)
    host.flush_logs()
    said = [json.loads(line)["message"] for line in lab.lines("stdout")]
    assert said == [
        "ours",
        "by indexmill.scraper.worker",
        "by indexmill.platform.breakers",
        "by botocore.audit",
    ]


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
@pytest.mark.parametrize("level", [None, "INFO"], ids=["text", "JSON"])
@pytest.mark.parametrize("planted", [False, True])
async def test_no_line_has_the_query_of_a_url(lab: Lab, planted: bool, level: str | None) -> None:
    host = await lab.start(lab.function(NAMES_URLS, log_level=level))
    await call(host, {"planted": planted})
    host.flush_logs()
    lines = lab.lines("stdout") + lab.lines("stderr")
    assert [CANARY in line for line in lines].count(True) == (1 if planted else 0)
    assert "".join(lines).count("https://site.example:8443/a/page.html") >= 5 + 5
    (rescued,) = (json.loads(line) for line in lines if "job.rescued" in line)
    assert rescued["url"] == "https://site.example:8443/a/page.html"


RAISES = """
from indexmill.platform.observability import entry_point

TEXT = 'no "https://site.example/a"b/c?token="canary-of-a-query"#canary-of-a-query" there'

def work(event, context):
    try:
        raise OSError(TEXT)
    except OSError as error:
        raise LookupError(TEXT) from error

handler = %s
"""


@pytest.mark.shows("B88")
@pytest.mark.parametrize("level", [None, "INFO"], ids=["text", "JSON"])
@pytest.mark.parametrize("handler", ["entry_point(work)", "work"])
async def test_what_the_runtime_logs_of_an_error_has_no_query(
    lab: Lab, handler: str, level: str | None
) -> None:
    host = await lab.start(lab.function(RAISES % handler, log_level=level))
    result = await call(host)
    host.flush_logs()
    said = "".join(record.message + str(record.more) for record in lab.records) + str(result.payload)
    assert (CANARY in said) is (handler == "work")
    (end,) = (record for record in lab.records if record.message.startswith("END "))
    assert end.more["place"].endswith("code/fn/app.py:10"), "its place in the code stays"
    if handler != "work":
        assert fault(result) == ("LookupError", 'no "https://site.example/a"b/c there')


HANDLES = """
import logging
from indexmill.platform.observability import Observability

observability = Observability("scraper")

def handler(event, context):
    try:
        [][0]
    except IndexError:
        observability.log.exception("request.failed", extra={"code": event["code"]})
        logging.getLogger("indexmill.scraper.worker").exception("unexpected", extra={"job_id": "job-1"})
        observability.log.warning("not sent", exc_info=True)
    if event["raises"]:
        raise LookupError("no such shelf")
"""


@pytest.mark.parametrize("level", [None, "INFO"], ids=["text", "JSON"])
async def test_an_exception_that_a_function_handles_is_an_error_of_it(lab: Lab, level: str | None) -> None:
    lines: list[str] = []
    errors = FunctionErrors(lines.append, root=lab.folder)
    host = await lab.start(lab.function(HANDLES, log_level=level))
    host.listen(errors.on_log)
    await call(host, {"code": "internal_error", "raises": False})
    handled = [(each["error"], each["place"], each["jobs"]) for each in errors.since(0)]
    found = ("IndexError: list index out of range", "code/fn/app.py:9")
    # A library's line is JSON only where the function's LogFormat is, as in the template.
    assert handled == [(*found, ()), *([(*found, ("job-1",))] if level else [])]
    await call(host, {"code": "database_unavailable", "raises": True})
    assert lines[0].startswith(
        "fn failed at code/fn/app.py:9: IndexError: list index out of range (see more: "
    )
    assert lines[-1].startswith("fn failed at code/fn/app.py:15: LookupError: no such shelf (see more: ")
    assert len(lines) == 2, "each once, and none that another service's outage explains"

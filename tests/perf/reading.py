"""Costs of reading, on this tree: `python -m tests.perf.reading [--list]`.

One job goes from the submitting handler to `done` through the real handlers of template.yaml, in one process,
on a real Postgres, MiniStack, the built-in web site and the embedding stand-in. The files whose functions run
are counted up to the 202 and for the whole job; `tools.reading` counts the rest from the text.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import importlib.util
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import boto3
import psycopg

from local.backends.ministack import MiniStack
from local.backends.ministack_resources import create_resources
from local.backends.postgres import EmbeddedPostgres, create_database
from local.backends.postgres_logins import secret_parameters
from local.stack.runtime import with_secrets
from local.stack.stand_ins import StandIns
from local.stack.state import StateFolder
from local.template.spec import FunctionSpec
from local.template.template import CloudSpec, Template
from local.template.translation import translate
from sql.migrate import migrate
from tests.support.events import FakeContext, api_event, caller_claims
from tests.support.ministack import ACCOUNT, PYTHON, REGION
from tests.support.repository import ROOT
from tools.prose import count
from tools.reading import Trace, executed_sql, importers, lines, with_one_importer

LIMIT_S: Final = 60.0
SUBMIT: Final = "submit"
_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": REGION,
}


class Functions:
    """The template's functions, loaded from their folders; each is traced while it handles an event."""

    def __init__(self, specs: Iterable[FunctionSpec], variables: Mapping[str, str], trace: Trace) -> None:
        self._specs = {spec.logical_id: spec for spec in specs}
        self._handlers = {name: _load(spec, variables) for name, spec in self._specs.items()}
        self._trace = trace

    def call(self, logical_id: str, event: dict[str, Any], leg: str) -> Any:
        """Return the handler's answer; its own file counts although it may have no function."""
        self._trace.add(leg, [_file(self._specs[logical_id]).relative_to(ROOT).as_posix()])
        with executed() as statements, self._trace.leg(leg):
            answer = self._handlers[logical_id](event, FakeContext(remaining_ms=300_000))
        self._trace.add(leg, executed_sql(ROOT, statements))
        return answer


def _file(spec: FunctionSpec) -> Path:
    return spec.code_dir / f"{spec.handler.rsplit('.', 1)[0]}.py"


def _load(spec: FunctionSpec, variables: Mapping[str, str]) -> Callable[[dict[str, Any], Any], Any]:
    """Return a function's handler, initialised with its variables as Lambda does."""
    found = importlib.util.spec_from_file_location(f"traced_{spec.logical_id}", _file(spec))
    assert found is not None
    assert found.loader is not None
    os.environ.update({**spec.environment, **variables})
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    handler: Callable[[dict[str, Any], Any], Any] = getattr(loaded, spec.handler.rsplit(".", 1)[1])
    return handler


class Lambda:
    """Lambda's Invoke API in front of `functions`, for functions that invoke another one."""

    def __init__(self, functions: Callable[[str, dict[str, Any]], Any]) -> None:
        names: dict[str, str] = {}
        self.names = names
        """Logical ids by function name."""

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                name = self.path.split("/functions/")[1].split("/")[0]
                answer = json.dumps(functions(names[name], event)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"


@contextmanager
def executed() -> Iterator[list[str]]:
    """Yield the list to which the text of each executed statement is added."""
    statements: list[str] = []

    def recorded(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            statements.append(str(query))
            return method(cursor, query, *arguments, **options)

        return call

    originals = {name: getattr(psycopg.Cursor, name) for name in ("execute", "executemany", "copy")}
    for name, method in originals.items():
        setattr(psycopg.Cursor, name, recorded(method))
    try:
        yield statements
    finally:
        for name, method in originals.items():
            setattr(psycopg.Cursor, name, method)


async def trace_job(folder: Path) -> Trace:
    """Take one job to `done` and return what ran: legs `submit`, then one per consumer."""
    trace = Trace(ROOT)
    await with_functions(
        folder, lambda cloud, ids, database, endpoint: Job(cloud, ids, database, endpoint, trace).run
    )
    return trace


Use = Callable[[CloudSpec, Mapping[str, str], str, str], Callable[[str], None]]
"""Of a cloud, its resources' ids, a database and an AWS endpoint; what it returns gets the site's address."""


async def with_functions(
    folder: Path, use: Use, root: Path | None = None, overrides: Mapping[str, str] | None = None
) -> None:
    """Start what the functions need and run `use(cloud, ids, database, endpoint)(site)` in a thread.

    `root` is a folder to serve as the web site in place of the built-in pages, `overrides` are parameters.
    """
    state = StateFolder(folder / "state")
    state.acquire()
    stand_ins = StandIns(state, {}, root)
    ministack = MiniStack(folder / "aws", PYTHON, account_id=ACCOUNT, region=REGION)
    postgres = EmbeddedPostgres(folder / "postgres")
    parameters = stand_ins.parameters(state.keys()) | secret_parameters(REGION, ACCOUNT)
    (folder / "aws").mkdir()
    try:
        database = create_database(await asyncio.to_thread(postgres.start), "reading")
        migrate(database)
        endpoint = await ministack.start()
        await asyncio.gather(*(service.start() for service in stand_ins.services))
        translated, values = translate(ROOT / "template.yaml", parameters, overrides or {}, REGION)
        template = Template(translated, values, folder=ROOT, region=REGION, account_id=ACCOUNT)
        made = await asyncio.to_thread(create_resources, endpoint, template.stateful(), region=REGION)
        cloud = template.cloud(made.ids, made.arns)

        def take() -> None:  # an HTTP handler uses the event loop of the thread that initialised it
            use(cloud, made.ids, database, endpoint)(stand_ins.addresses["site"])

        await asyncio.to_thread(take)
    finally:
        await asyncio.gather(*(service.stop() for service in stand_ins.services), ministack.stop())
        await asyncio.to_thread(postgres.stop)
        state.release()


class Job:
    """One job's way through the functions: each queue's messages go to its consumer until the job is done."""

    def __init__(
        self, cloud: CloudSpec, ids: Mapping[str, str], database: str, endpoint: str, trace: Trace
    ) -> None:
        invoke = Lambda(lambda name, event: self._functions.call(name, event, name))
        variables = {
            **_CREDENTIALS,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ENDPOINT_URL_LAMBDA": invoke.url,
            "POWERTOOLS_METRICS_NAMESPACE": "indexmill",
        }
        literals = {"DATABASE_URL": database, "STREAM_TOKEN_KEY": "thirty-two bytes for measurements"}
        specs = [with_secrets(spec, literals) for spec in cloud.functions]
        self._functions = Functions(specs, variables, trace)
        invoke.names.update({spec.name: spec.logical_id for spec in specs})
        self._sources = {ids[source.queue]: source.function for source in cloud.sources}
        self._sqs: Any = boto3.client(
            "sqs",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        self._database = database
        self._trace = trace

    def run(self, site: str) -> None:
        """Submit a page of `site` and consume queues until its job is done. Raises TimeoutError."""
        body = {"url": f"{site}/handbook.html", "corpus_name": "reading"}
        with self._trace.installed():
            event = api_event("POST", "/orchestrator/jobs", body, caller=caller_claims())
            answer = self._functions.call("OrchestratorApi", event, SUBMIT)
            assert answer["statusCode"] == 202, answer
            self._consume(json.loads(answer["body"])["job_id"])

    def _consume(self, job_id: str) -> None:
        limit = time.monotonic() + LIMIT_S
        while (status := self._status(job_id)) != "done":
            if status == "failed" or time.monotonic() > limit:
                raise TimeoutError(f"the job is {status}")
            for queue, function in self._sources.items():
                self._deliver(queue, function)

    def _status(self, job_id: str) -> str:
        with psycopg.connect(self._database) as connection:
            row = connection.execute("SELECT status FROM jobs WHERE id = %s", [job_id]).fetchone()
        assert row is not None
        return str(row[0])

    def _deliver(self, queue: str, function: str) -> None:
        got = self._sqs.receive_message(
            QueueUrl=queue, AttributeNames=["All"], MessageAttributeNames=["All"], MaxNumberOfMessages=10
        ).get("Messages", [])
        if not got:
            return
        records = [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue.rpartition('/')[2]}",
                "awsRegion": REGION,
            }
            for message in got
        ]
        answer = self._functions.call(function, {"Records": records}, function) or {}
        failed = {each["itemIdentifier"] for each in answer.get("batchItemFailures", [])}
        done = [record for record in records if record["messageId"] not in failed]
        if done:
            # In a batch it is no error that the function deleted some of them itself.
            entries = [
                {"Id": str(at), "ReceiptHandle": record["receiptHandle"]} for at, record in enumerate(done)
            ]
            self._sqs.delete_message_batch(QueueUrl=queue, Entries=entries)


def new_files(trace: Trace) -> dict[str, list[str]]:
    """Return the files by leg, each file only in the first leg that runs it."""
    seen: set[str] = set()
    found = {}
    for leg in trace.legs:
        found[leg] = [name for name in trace.files(leg) if name not in seen]
        seen.update(found[leg])
    return found


def as_markdown(trace: Trace) -> Iterator[str]:
    """Yield the lines of the walk: a heading per leg and its new files with their docstrings."""
    for leg, names in new_files(trace).items():
        yield from ("", f"### {leg}", "")
        yield from (f"{number}. `{_short(name)}`: {_summary(name)}" for number, name in enumerate(names, 1))


def _short(name: str) -> str:
    """Return the path without the folders of the library."""
    return name.removeprefix("layers/indexmill/python/indexmill/")


def _summary(name: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    first = text.split("\n", 1)[0].removeprefix("--").strip() if name.endswith(".sql") else None
    return first or (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("\n", " ")


def main() -> None:
    """Print the figures; with `--list` the files and modules behind them."""
    parser = argparse.ArgumentParser(description="Measure what following a job in the code costs.")
    parser.add_argument("--list", action="store_true", help="print files and modules too")
    parser.add_argument(
        "--walk", action="store_true", help="print the walk for docs/architecture.md, nothing else"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="indexmill-reading-", ignore_cleanup_errors=True) as folder:
        trace = asyncio.run(trace_job(Path(folder)))
    if options.walk:
        print("\n".join(as_markdown(trace)))
        return
    alone = with_one_importer(ROOT)
    every = len(importers(ROOT))
    prose = count()
    words = sum(area.words for area in prose.values())
    idioms = sum(len(area.places) for area in prose.values())
    if options.list:
        for leg in trace.legs:
            print(f"# {leg}", *trace.files(leg), sep="\n  ")
        print("# modules with one importer", *alone, sep="\n  ")
    size = lines(ROOT)
    print(f"files, submit to 202       {len(trace.files(SUBMIT)):>7}")
    print(f"files, whole job           {len(trace.files()):>7}")
    print(f"modules with one importer  {len(alone):>7} of {every} ({100 * len(alone) / every:.1f} %)")
    print(f"lines, layers + functions  {sum(size.values()):>7,} ({size['.py']:,} .py, {size['.sql']:,} .sql)")
    print(f"idioms per 1,000 words     {1000 * idioms / words:>7.2f} ({idioms} in {words:,})")


if __name__ == "__main__":
    main()

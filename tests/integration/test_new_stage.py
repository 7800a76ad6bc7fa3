"""A new stage is added to a copy of the tree, and a job goes through it.

The copy shows what a new stage takes: a row, a message and a result, a module, settings, a service, a
template entry and a generated migration. Nothing is patched: its own functions run, on Postgres and SQS.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.backends.ministack import MiniStack
from tests.support.releases import Release
from tests.support.tree_copy import LIBRARY, Tree
from tests.support.upgrade import CALLER, INTERNAL, Site, World, by, names, served_site

pytestmark = pytest.mark.integration

LIFE = ["pending", "scraping", "translating", "chunking", "embedding", "done"]

ROW = """
    Stage(
        name="translating",
        next="chunking",
        queue="translate",
        budget_s=60,
        in_progress="Translating content…",
        on_failure="Content could not be translated.",
    ),
"""
MESSAGES = """
class TranslateTask(Message):
    schema_name: Literal["indexmill.translate.v1"] = Field(default="indexmill.translate.v1", alias="schema")
    document: Document


class TranslateResult(StageResult):
    stage: Literal["translating"] = "translating"
    document: Document | None = None

    @property
    def output(self) -> Document | None:
        return self.document


"""
MODULE = """
from indexmill.contracts.content import Document
from indexmill.contracts.messages import TranslateTask, read_kept
from indexmill.orchestrator.store.results import Change

TASK = TranslateTask


def next_message(message_id, state, before):
    return TranslateTask(
        message_id=message_id, job_id=state.job_id, attempt=state.attempt, document=before.output
    )


def renew(state, payload, message_id, attempt, generation):
    return read_kept(TASK, payload, message_id=message_id, attempt=attempt)


def facts(state, result):
    return Change(title=result.document.title)


def from_http(state, result):
    return {"document": Document.model_validate(result["document"])}
"""
WORKER = """
import os

from indexmill.contracts.errors import ErrorCode, PermanentError
from indexmill.contracts.messages import TranslateTask
from indexmill.contracts.pipeline import BY_NAME
from indexmill.platform.consumer.delivery_log import DeliveryLog
from indexmill.platform.aws.sqs_queue import Queue
from indexmill.platform.consumer.deliveries import BatchReporter, WorkerStage
from indexmill.platform.consumer.sqs_batch import SqsBatch
from indexmill.platform.observability import Observability
from indexmill.platform.time import SystemClock

_STAGE = WorkerStage(BY_NAME["translating"], "The document stopped the worker each time it was translated")


def build_worker():
    clock, callbacks = SystemClock(), Queue(os.environ["CALLBACKS_QUEUE_URL"])

    def translate(deliveries):
        reporter = BatchReporter(_STAGE, deliveries, callbacks, clock)
        for at, delivery in enumerate(deliveries):
            document = delivery.message.document
            if "untranslatable" in document.text:
                reporter.error(at, PermanentError(ErrorCode.PARSE_ERROR, "It cannot be translated."))
            else:
                changed = document.model_copy(update={"text": document.text.upper()})
                reporter.success(at, document=changed)
        return reporter.finish()

    return SqsBatch(
        TranslateTask,
        translate,
        source=Queue(os.environ["TRANSLATE_QUEUE_URL"]),
        dead=Queue(os.environ["TRANSLATE_DLQ_URL"]),
        delivery_log=DeliveryLog(os.environ["STATE_TABLE"], clock),
        observability=Observability("translating"),
    )
"""
FUNCTION = """
from indexmill.platform.observability import entry_point
from indexmill.translating.worker import build_worker

handler = entry_point(build_worker())
"""


def add_template_entry(folder: Path) -> None:
    """Add queue, dead letters and worker, and name them where chunking's are named."""
    lines: list[str] = []
    added: list[str] = []
    top = block = ""
    for line in (folder / "template.yaml").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith((" ", "#")):
            top = line
        if line.startswith("  ") and not line.startswith(("   ", "  #")):
            block = line.strip(" :")
            lines += added
            added = []
        of_stage = block.startswith(("ChunkQueue", "ChunkDlq", "ChunkingWorker")) or (
            top == "Parameters:" and block.startswith("Chunk")
        )
        lines.append(line)
        if of_stage:
            added.append(_renamed(line))
        # A limit is the service's, not the stage's.
        elif block.startswith("Orchestrator") and re.search("^(?!.*FairShare).*(CHUNK|Chunk(?!:))", line):
            lines.append(_renamed(line))
    text = "\n".join(lines) + "\n"
    start, end = (text.index(f"        {name}:\n          Type: SQS") for name in ("Chunk", "Embed"))
    event = text[start:end]
    text = text.replace(event, _event(event))
    (folder / "template.yaml").write_text(text, encoding="utf-8")


def generate_migration(folder: Path) -> str:
    """Return what the tool prints for the copy's table."""
    done = subprocess.run(
        [sys.executable, "-P", folder / "tools" / "stage_migration.py"],
        env={**os.environ, "PYTHONPATH": str(folder / "layers" / "indexmill" / "python")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _renamed(line: str) -> str:
    for before, after in (("Chunking", "Translating"), ("Chunk", "Translate"), ("CHUNK", "TRANSLATE")):
        line = line.replace(before, after)
    return line.replace("functions/chunking/", "functions/translating/")


def _event(text: str) -> str:
    """Return the event of chunking's dead letters, then the same of the new stage's."""
    own = [line for line in text.splitlines() if "Translate" not in line]
    return "\n".join([*own, *map(_renamed, own)]) + "\n"


def with_new_stage(folder: Path) -> Tree:
    """Return a copy of this tree with a stage between scraping and chunking."""
    tree = Tree(folder)
    tree.edit(
        f"{LIBRARY}/contracts/pipeline.py",
        ('        next="chunking",\n', '        next="translating",\n'),
        ('    Stage(\n        name="chunking"', f'    {ROW.strip()}\n    Stage(\n        name="chunking"'),
    )
    tree.edit(
        f"{LIBRARY}/contracts/messages.py",
        ("_ANY_RESULT: Final", MESSAGES + "_ANY_RESULT: Final"),
        ("ScrapeResult | ChunkResult", "ScrapeResult | TranslateResult | ChunkResult"),
    )
    tree.add(f"{LIBRARY}/orchestrator/stages/translating.py", MODULE)
    tree.edit(
        f"{LIBRARY}/orchestrator/stages/registry.py",
        ("import chunking, embedding, scraping", "import chunking, embedding, scraping, translating"),
        ('    "chunking": chunking,\n', '    "translating": translating,\n    "chunking": chunking,\n'),
    )
    tree.edit(
        f"{LIBRARY}/orchestrator/settings.py",
        ("    chunk_queue_url: str\n", "    chunk_queue_url: str\n    translate_queue_url: str\n"),
        ("    chunk_dlq_url: str\n", "    chunk_dlq_url: str\n    translate_dlq_url: str\n"),
        ("    chunk_mapping_id: str\n", "    chunk_mapping_id: str\n    translate_mapping_id: str\n"),
    )
    tree.add(f"{LIBRARY}/translating/__init__.py", "")
    tree.add(f"{LIBRARY}/translating/worker.py", WORKER)
    tree.add("functions/translating/worker.py", FUNCTION)
    add_template_entry(tree.folder)
    tree.add("sql/9999_translating.sql", generate_migration(tree.folder))
    return tree


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served_site() as site:
        yield site


@pytest.fixture(scope="module")
def release(site: Site, ministack: MiniStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    tree = with_new_stage(tmp_path_factory.mktemp("new-stage"))
    log = tmp_path_factory.mktemp("log") / "log"
    release = Release("new stage", tree.folder, ministack.endpoint, site.address, log)
    yield release
    release.close()


@pytest.fixture
def world(database_url: str, release: Release, site: Site) -> World:
    return World.of(release, database_url, "new-stage", site)


def shown(world: World, job_id: str) -> Any:
    return world.new.http("GET", f"/orchestrator/jobs/{job_id}", caller=CALLER)


def test_a_job_goes_through_the_new_stage(world: World) -> None:
    (page,) = names()
    (job_id,) = world.submit(world.new, page)
    world.queues.deliver(by(world.new), "ScrapeQueue")
    world.queues.deliver(by(world.new), "CallbacksQueue")
    job = shown(world, job_id)
    assert (job["status"], job["user_message"]) == ("translating", "Translating content…")
    assert job["progress"] == {"stage": 2, "of": 4}
    assert [body["job_id"] for body in world.queues.bodies("TranslateQueue")] == [job_id]
    world.sweep(world.new)
    world.queues.drain(by(world.new))
    assert world.life(job_id) == LIFE
    assert [text for text in world.site.embedded if page.upper() in text and "THESE ARE THE WORDS" in text]
    assert shown(world, job_id)["progress"] == {"stage": 4, "of": 4}


def test_a_failure_in_the_new_stage_is_retried_from_there(world: World) -> None:
    page = f"untranslatable-{names()[0]}"
    (job_id,) = world.submit(world.new, page)
    world.queues.drain(by(world.new))
    job = shown(world, job_id)
    assert (job["status"], job["failed_stage"], job["error"]["code"]) == (
        "failed",
        "translating",
        "parse_error",
    )
    assert job["user_message"] == "Content could not be translated."
    listed = world.new.http(
        "POST",
        "/orchestrator/jobs/retry",
        {"failed_stage": "translating", "include_permanent": True},
        caller=CALLER,
    )
    assert listed["retried"] == [job_id]
    assert world.life(job_id)[-2:] == ["pending", "translating"]
    assert world.site.fetched[page] == 1


def test_a_dead_message_and_a_result_over_http_are_the_new_stages(world: World) -> None:
    dead, completed = world.submit(world.new, *names(2))
    for queue in ("ScrapeQueue", "CallbacksQueue"):
        world.queues.deliver(by(world.new), queue)
    world.queues.move_to_dlq("TranslateQueue", "TranslateDlq", dead)
    document = {
        "url": "u",
        "final_url": "u",
        "content_type": "text/plain",
        "text": "By hand.",
        "content_sha256": "0",
    }
    report = {"stage": "translating", "status": "success", "result": {"document": document}}
    answer = world.act(world.new, completed, "complete", report, caller=INTERNAL)
    assert answer["status"] == "chunking"
    world.queues.drain(by(world.new))
    assert world.statuses(dead, completed) == ["failed", "done"]
    assert world.rows("SELECT stage, cause FROM dead_letters") == [("translating", "poison_message")]


def test_the_new_stage_can_be_paused(world: World) -> None:
    world.change("INSERT INTO pauses (stage, reason, paused_by) VALUES ('translating', 'a test', 'me')")
    world.sweep(world.new)
    assert ("paused", "translating") in world.rows(
        "SELECT kind, subject FROM incidents WHERE closed_at IS NULL"
    )

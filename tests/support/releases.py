"""Two releases on one database and the same queues: an older one, from the git history, and this one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import boto3
import pytest

from local.backends.ministack_resources import Resources, create_resources
from local.backends.model_files import tokenizer_path
from local.template.template import CloudSpec, Template
from local.template.translation import translate
from local.triggers.sqs_events import record
from tests.support.events import api_event
from tests.support.ministack import ACCOUNT, REGION
from tests.support.repository import ROOT
from tests.support.stack import eventually

PREVIOUS: Final = "66be80dd"
"""Commit of the previous release; set it to the commit of each release that is made."""

_DRIVER: Final = Path(__file__).with_name("release_driver.py")
_QUOTAS: Final = {"QuotaFree": "unlimited", "QuotaPro": "max_active=1"}


def extract(commit: str, folder: Path) -> Path:
    """Write a release's tree to `folder`; skips where the repository lacks it, and fails in CI."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        reason = f"{commit} is not in this repository: {archive.stderr.decode().strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{reason}; CI needs the full history")
        pytest.skip(reason)
    subprocess.run(["tar", "x"], cwd=folder, input=archive.stdout, check=True)
    return folder


class Release:
    """The functions of one tree, in a process of their own."""

    def __init__(self, name: str, tree: Path, endpoint: str, site: str, log: Path, **parameters: str) -> None:
        """`endpoint` is AWS's, `site` serves the pages and the embeddings.

        With `parameters` that name secrets, the functions read them; else they get literals.
        """
        self.name = name
        self.tree = tree
        overrides = {
            **_QUOTAS,
            "AllowedPrivateHosts": site.removeprefix("http://"),
            "MembershipUrl": site,
            "EmbeddingBaseUrl": f"{site}/v1",
            "EmbeddingDimension": "4",
            "TokenizerFile": str(tokenizer_path()),
            "LogLevel": "WARNING",
            "DomainRates": "*=unlimited",
            **parameters,
        }
        self._secrets = any(each.endswith("SecretArn") for each in parameters)
        translated, parameters = translate(tree / "template.yaml", {}, overrides, REGION)
        self._template = Template(translated, parameters, folder=tree, region=REGION, account_id=ACCOUNT)
        self.endpoint = endpoint
        self.cloud: CloudSpec
        self.lambda_endpoint: str
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-P", _DRIVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=tree,
                text=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(tree / "layers" / "indexmill" / "python"),
                    "AWS_ENDPOINT_URL": endpoint,
                    "AWS_DEFAULT_REGION": REGION,
                    "AWS_ACCESS_KEY_ID": "local",
                    "AWS_SECRET_ACCESS_KEY": "local",
                },
            )

    def create(self, stack: str) -> Resources:
        """Create or update the queues, table and bucket of `stack`."""
        stateful = self._template.stateful()
        for body in stateful["Resources"].values():
            for key in {"QueueName", "TableName", "BucketName"} & set(body["Properties"]):
                body["Properties"][key] = f"{stack}-{body['Properties'][key]}"
        return create_resources(self.endpoint, stateful, region=REGION, stack=stack)

    def deploy(self, resources: Resources, database_url: str, **changed: str) -> None:
        """Deploy all functions; `changed` replaces variables of their environments, or adds AWS's own."""
        self.cloud = self._template.cloud(resources.ids, resources.arns)
        own = {"DATABASE_URL": database_url, "STREAM_TOKEN_KEY": "a key for tests, of thirty-two bytes"}
        functions = {}
        for each in self.cloud.functions:
            module, _, attribute = each.handler.rpartition(".")
            given = dict(each.environment)
            if not self._secrets:
                given = {k: v for k, v in given.items() if not k.endswith("_SECRET_ARN")} | own
            replaced = {k: v for k, v in changed.items() if k in given or k.startswith("AWS_")}
            environment = {**given, **replaced}
            file = str(each.code_dir / f"{module}.py")
            functions[each.logical_id] = {"file": file, "attribute": attribute, "environment": environment}
        self.lambda_endpoint = self._command(deploy=functions)

    def migrate(self, database_url: str) -> None:
        """Apply the release's migrations by its own command line."""
        command = [sys.executable, self.tree / "sql" / "migrate.py", database_url]
        subprocess.run(command, cwd=self.tree, check=True, capture_output=True)

    def invoke(self, function: str, event: Any) -> Any:
        """Return the function's result; fails the test when it raises."""
        return self._command(invoke=function, event=event)

    def invoke_unchecked(self, function: str, event: Any) -> None:
        """Run a function that may raise, as it may between two releases."""
        with contextlib.suppress(AssertionError):
            self.invoke(function, event)

    def http(
        self, method: str, path: str, body: Any = None, *, caller: Mapping[str, str], **more: Any
    ) -> Any:
        """Return the Orchestrator's answer; fails the test when its status is not `status`, or 200 or 202."""
        status = more.pop("status", None)
        answer = self.invoke("OrchestratorApi", api_event(method, path, body, caller=dict(caller), **more))
        wanted = (status,) if status else (200, 202)
        assert answer["statusCode"] in wanted, f"{self.name}: {method} {path}: {answer}"
        return json.loads(answer["body"])

    def close(self) -> None:
        """End the process."""
        with self._process as process:
            process.kill()

    def _command(self, **command: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(command) + "\n")
        stdin.flush()
        answer = json.loads(stdout.readline() or '{"error": "the process ended"}')
        assert "error" not in answer, f"{self.name}: {answer['error']}"
        return answer["result"]


Choose = Callable[[str, dict[str, Any]], Release | None]
"""Returns the release that handles a message, by the function that consumes it and the message's body.

None leaves the message in its queue."""


class Queues:
    """The queues between the functions; a message is delivered when a test calls for it."""

    def __init__(self, endpoint: str, resources: Resources, newest: Release) -> None:
        """`newest` consumes all queues, also those that another release has no consumer for."""
        credentials = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
        self._sqs = boto3.client("sqs", region_name=REGION, endpoint_url=endpoint, **credentials)
        self._resources = resources
        self._newest = newest

    def url(self, queue: str) -> str:
        """Return a queue's URL by its logical id."""
        return self._resources.ids[queue]

    def move_to_dlq(self, queue: str, dead: str, job_id: str) -> None:
        """Move the messages of a job to a dead-letter queue."""
        messages = self.receive(queue)
        own = [message for message in messages if json.loads(message["Body"])["job_id"] == job_id]
        self._give_back(queue, [message for message in messages if message not in own])
        self._delete(queue, own)
        for message in own:
            self._sqs.send_message(QueueUrl=self.url(dead), MessageBody=message["Body"])

    def discard(self, queue: str) -> None:
        """Delete all visible messages."""
        self._delete(queue, self.receive(queue))

    def receive(self, queue: str, visibility_s: int = 60) -> list[dict[str, Any]]:
        """Receive all visible messages."""
        found: list[dict[str, Any]] = []
        while messages := self._sqs.receive_message(
            QueueUrl=self.url(queue),
            MaxNumberOfMessages=10,
            VisibilityTimeout=visibility_s,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        ).get("Messages"):
            found += messages  # type: ignore[arg-type]
        return found

    def send(self, queue: str, body: str) -> None:
        """Send one message."""
        self._sqs.send_message(QueueUrl=self.url(queue), MessageBody=body)

    def bodies(self, queue: str) -> list[dict[str, Any]]:
        """Return the visible messages and leave them visible."""
        messages = self.receive(queue)
        self._give_back(queue, messages)
        return [json.loads(message["Body"]) for message in messages]

    def deliver(self, choose: Choose, *only: str, hidden_s: int | None = None) -> int:
        """Deliver the visible messages of all queues, or of `only` these, once; return their number.

        `hidden_s` replaces the queues' visibility timeouts, after which those of a failed invocation return;
        without it an invocation must not fail.
        """
        delivered = 0
        for source in self._newest.cloud.sources:
            if only and source.queue not in only:
                continue
            batches: dict[Release | None, list[dict[str, Any]]] = {}
            for message in self.receive(source.queue, hidden_s or source.visibility_s):
                release = choose(source.function, json.loads(message["Body"]))
                if release is not None and source.queue not in {each.queue for each in release.cloud.sources}:
                    release = self._newest
                batches.setdefault(release, []).append(message)
            self._give_back(source.queue, batches.pop(None, []))
            for release, messages in batches.items():
                assert release is not None
                with contextlib.suppress(*([AssertionError] if hidden_s else [])):
                    self._invoke(release, source.queue, messages)
                delivered += len(messages)
        return delivered

    def drain(self, choose: Choose) -> None:
        """Deliver until nothing is left but what `choose` leaves, also what consumers gave back for later."""
        eventually(lambda: self.deliver(choose) == 0 and not self._any_hidden(), "the queues are drained")

    def _any_hidden(self) -> bool:
        hidden: Final = "ApproximateNumberOfMessagesNotVisible"
        return any(
            int(self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[hidden])["Attributes"][hidden])
            for name, url in self._resources.ids.items()
            if name.endswith(("Queue", "Dlq"))
        )

    def _give_back(self, queue: str, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self._sqs.change_message_visibility(
                QueueUrl=self.url(queue), ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )

    def _invoke(self, release: Release, queue: str, messages: list[dict[str, Any]]) -> None:
        (source,) = (each for each in release.cloud.sources if each.queue == queue)
        arn = self._resources.arns[queue]
        for at in range(0, len(messages), source.batch_size):
            batch = messages[at : at + source.batch_size]
            event = {"Records": [record(message, arn, REGION) for message in batch]}
            reply = release.invoke(source.function, event) or {}
            kept = {each["itemIdentifier"] for each in reply.get("batchItemFailures", ())}
            self._delete(queue, [message for message in batch if message["MessageId"] not in kept])

    def _delete(self, queue: str, messages: list[dict[str, Any]]) -> None:
        handles = [
            {"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]} for at, each in enumerate(messages)
        ]
        if handles:
            # A consumer may have deleted some itself; those are refused.
            self._sqs.delete_message_batch(QueueUrl=self.url(queue), Entries=handles)  # type: ignore[arg-type]

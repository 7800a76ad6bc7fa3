"""The pipeline on Postgres and the real index, with what deletes and what signs, for tests of deletions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import boto3

from indexmill.contracts.content import Document
from indexmill.contracts.http_deletion import DeletionPreview, DeletionReport
from indexmill.contracts.identity import CallerContext, CorpusIsolation
from indexmill.contracts.job import SubmitRequest, SubmitResponse
from indexmill.contracts.messages import EmbedTask, ScrapeTask, StageResult, read, stage_result
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.ports import SearchQuery
from indexmill.embedding.worker import EmbedBatch
from indexmill.orchestrator.actions.delete import DeleteDocuments
from indexmill.orchestrator.adapters.aws import ProgressItems, S3Objects
from indexmill.orchestrator.settings import Lifetimes
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.orchestrator.sweeper.deletions import ReportDeletions
from indexmill.platform.aws.secrets import Secret
from indexmill.platform.aws.signing import Signer
from indexmill.platform.aws.state_table import StateTable
from indexmill.platform.consumer.deliveries import Delivery, Retry
from indexmill.platform.postgres.database import Database
from local.backends.ministack import MiniStack
from local.backends.ministack_resources import session
from local.cli.audit import verified
from tests.support.jobs import CALLER
from tests.support.ministack import REGION
from tests.support.orchestrator import OrchestratorHarness
from tests.twins.blobs import InMemoryBlobs
from tests.twins.embedder import HashEmbedder
from tests.twins.queues import InMemoryQueue
from tests.twins.uploads import InMemoryUploads
from tests.twins.vector_cache import InMemoryVectorCache


class Aws:
    """Bucket, table and key of one test."""

    def __init__(self, ministack: MiniStack, name: str) -> None:
        made: boto3.Session = session(REGION)
        self.s3: Any = made.client("s3", endpoint_url=ministack.endpoint)
        self.kms: Any = made.client("kms", endpoint_url=ministack.endpoint)
        self.dynamodb: Any = made.client("dynamodb", endpoint_url=ministack.endpoint)
        self.name = name
        self.s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        self.dynamodb.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        )
        made_key = self.kms.create_key(KeySpec="ECC_NIST_P256", KeyUsage="SIGN_VERIFY")
        self.key_id = str(made_key["KeyMetadata"]["KeyId"])

    def public_key(self) -> bytes:
        """Return the key's public half in PEM."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

        der = self.kms.get_public_key(KeyId=self.key_id)["PublicKey"]
        return load_der_public_key(der).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def keys(self) -> list[str]:
        """Return the keys of the bucket's objects."""
        found = self.s3.list_objects_v2(Bucket=self.name)
        return [each["Key"] for each in found.get("Contents", [])]


class DeletionHarness(OrchestratorHarness):
    """Scrape, chunk and embed workers in process; messages wait in queues that only the test empties."""

    def __init__(self, url: str, aws: Aws, isolation: CorpusIsolation = CorpusIsolation.CALLER) -> None:
        """Nothing submitted."""
        self.database, self.index_database = Database(url), Database(url)
        super().__init__(JobStore(self.database))
        self.aws, self.index = aws, PgVectorIndex(self.index_database)
        self.embedder = HashEmbedder()
        self.callbacks = InMemoryQueue()
        self.worker = EmbedBatch(
            self.index, self.embedder, self.blobs, self.callbacks, InMemoryVectorCache(), self.clock
        )
        self.submit_jobs = SubmitJobs(
            self.store, self.relay, self.blobs, InMemoryUploads(self.blobs), isolation=isolation
        )
        self.delete_documents = DeleteDocuments(
            self.store,
            self.relay,
            self.clock,
            isolation=isolation,
            keys=Secret("a key for tests, of thirty-two bytes"),
        )
        self.pages: dict[str, str] = {}
        """Text by URL."""
        self.report_deletions = ReportDeletions(
            self.store,
            S3Objects(aws.name, aws.s3),
            ProgressItems(StateTable(aws.name, self.clock, aws.dynamodb)),
            Signer(aws.key_id, aws.kms),
            timedelta(days=90),
            Lifetimes(raw=400, logs=30, audit=400, backups=7),
            (self.embedder.space.model, self.embedder.space.dimension),
        )

    def close(self) -> None:
        """Close the connections."""
        self.database.close()
        self.index_database.close()

    def scraped(self, body: str, **more: Any) -> StageResult:
        """Return what a scrape worker makes of a message."""
        task = read(ScrapeTask, body)
        text = self.pages.get(task.url, f"# Page\n\nWords of {task.url}.")
        raw = InMemoryBlobs().put(text.encode(), kind="raw", content_type="text/html")
        document = Document(
            url=task.url,
            final_url=task.url,
            title="Page",
            content_type="text/html",
            text=text,
            raw_ref=raw,
            raw_stored_at=self.clock.now(),
            content_sha256=raw.sha256,
            **more,
        )
        return stage_result(
            message_id=f"{task.message_id}:result",
            job_id=task.job_id,
            attempt=task.attempt,
            stage="scraping",
            status="success",
            document=document,
        )

    def embedded(self, bodies: Sequence[str]) -> list[StageResult]:
        """Let an embed worker handle messages; return its results, which are not applied.

        A message that it gives back is in the queue again.
        """
        self.callbacks.bodies.clear()
        outcomes = self.worker([Delivery(read(EmbedTask, body), 1, 1e9) for body in bodies])
        for body, outcome in zip(bodies, outcomes, strict=True):
            if isinstance(outcome, Retry):
                self.embed.bodies.append(body)
        return [read(StageResult, body) for body in self.callbacks.bodies]

    def run(self, turns: int = 1_000) -> None:
        """Let all workers work until their queues are empty, which takes so many turns at most."""
        for _ in range(turns):
            if not (self.scrape.bodies or self.embed.bodies):
                return
            scrapes, self.scrape.bodies[:] = list(self.scrape.bodies), []
            if scrapes:
                self.deliver(*map(self.scraped, scrapes))
            embeds, self.embed.bodies[:] = list(self.embed.bodies), []
            if results := self.embedded(embeds):
                self.deliver(*results)
        raise AssertionError("there is always another message")

    def delete(
        self, ctx: CallerContext = CALLER, corpus_name: str | None = "docs", **what: Any
    ) -> SubmitResponse:
        """Submit a deletion."""
        request: dict[str, Any] = {"job_type": "delete", "delete": what}
        if corpus_name is not None:
            request["corpus_name"] = corpus_name
        return self.delete_documents(ctx, SubmitRequest.model_validate(request), "req-9")

    def preview(self, ctx: CallerContext = CALLER, corpus_name: str = "docs", **what: Any) -> DeletionPreview:
        """Submit a deletion's dry run."""
        request = {"job_type": "delete", "delete": what, "corpus_name": corpus_name, "dry_run": True}
        return self.delete_documents.preview(ctx, SubmitRequest.model_validate(request))

    def report(self, job_id: str, ctx: CallerContext = CALLER) -> DeletionReport:
        """Return the deletion's report, whose signature is valid."""
        envelope = self.delete_documents.report(ctx, job_id)
        return DeletionReport.model_validate_json(
            verified(json.dumps(envelope).encode(), self.aws.public_key())
        )

    def next_generation(self) -> int:
        """Return a number that the Orchestrator issues now."""
        return self.store.read(lambda tx: tx.next_generation())

    def found(self, words: str, corpus_key: str) -> list[str]:
        """Return the URLs that search finds by words."""
        query = SearchQuery([corpus_key], self.embedder.space, words, None)
        ids = [bytes.fromhex(each.chunk_id) for each in self.index.lists(query).keyword]
        statement = (
            "SELECT d.url FROM chunks AS c JOIN documents AS d ON d.id = c.document"
            " WHERE c.chunk_id = ANY(%s)"
        )
        return [url for (url,) in self.rows(statement, ids)]

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return self.database.connection().execute(statement.encode(), values).fetchall()

"""Client of a running stack for tests that inject faults and check the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg

from indexmill.client import Client
from indexmill.orchestrator.store.rows import CLAIM_S
from local.faults.activation import control_folder
from local.faults.control import FaultControl

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

WORK_QUEUES: Final = {"scraping": "ScrapeQueue", "chunking": "ChunkQueue", "embedding": "EmbedQueue"}
"""By stage."""
CALLBACKS: Final = "CallbacksQueue"
_DEPTHS: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_CLAIMS_END: Final = """
    UPDATE outbox SET claimed_until = now()
    WHERE sent_at IS NULL AND parked_at IS NULL AND claimed_until > now() AND NOT awaiting_admission
      AND (claimed_until <= now() + make_interval(secs => %s)
           OR claimed_until > now() + make_interval(secs => %s))
"""
_LATER: Final = (
    "UPDATE outbox SET sent_at = sent_at - interval '2 minutes' WHERE sent_at > now() - interval '2 minutes'",
    "UPDATE sweep_state SET counted_at = counted_at - interval '31 seconds'",
)


@dataclass(frozen=True)
class Cloud:
    """Running stack, made from the output of `up --json`."""

    info: Mapping[str, Any]

    @cached_property
    def control(self) -> FaultControl:
        """Fault control of the stack."""
        return FaultControl(control_folder(Path(self.info["state"])))

    @cached_property
    def client(self) -> Client:
        """API client of the first caller."""
        return Client(self.info["gateway"], self.info["api_key"])

    @cached_property
    def sqs(self) -> SQSClient:
        """SQS client."""
        return self._aws("sqs", self.info["aws_endpoint"])  # type: ignore[no-any-return]

    @cached_property
    def s3(self) -> S3Client:
        """S3 client."""
        return self._aws("s3", self.info["aws_endpoint"])  # type: ignore[no-any-return]

    @cached_property
    def dynamodb(self) -> DynamoDBClient:
        """DynamoDB client."""
        return self._aws("dynamodb", self.info["aws_endpoint"])  # type: ignore[no-any-return]

    @cached_property
    def functions(self) -> LambdaClient:
        """Lambda client."""
        return self._aws("lambda", self.info["invoke_endpoint"])  # type: ignore[no-any-return]

    @property
    def queues(self) -> dict[str, str]:
        """URLs of the queues by logical id."""
        return {name: url for name, url in self.info["resources"].items() if url.startswith("http")}

    def close(self) -> None:
        """Close the clients."""
        for each in (self.client, self.sqs, self.s3, self.dynamodb, self.functions):
            each.close()

    def database(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a connection in autocommit mode."""
        return psycopg.connect(self.info["database_url"], autocommit=True, connect_timeout=5)

    def depths(self) -> dict[str, int]:
        """Return the messages in each queue: visible, in flight and delayed together."""
        found = {}
        for name, url in self.queues.items():
            answer = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(_DEPTHS))
            found[name] = sum(int(answer["Attributes"].get(each, 0)) for each in _DEPTHS)
        return found

    def set_visibility(self, seconds: int) -> None:
        """Set the visibility timeout of every queue, from the next receive on."""
        for url in self.queues.values():
            self.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": str(seconds)})

    def set_batch_size(self, size: int) -> None:
        """Set the batch size of the event sources, from the next receive on."""
        for mapping in self.functions.list_event_source_mappings()["EventSourceMappings"]:
            self.functions.update_event_source_mapping(UUID=mapping["UUID"], BatchSize=size)

    def sweep(self) -> str:
        """Run the sweeper now, ignoring its result; return the id of its invocation."""
        answer = self.functions.invoke(FunctionName="OrchestratorSweeper", Payload=b"{}")
        return answer["ResponseMetadata"]["RequestId"]

    def pass_time(self, lease_s: float = 0.0) -> None:
        """Age all claims and sent messages by two minutes: claims expire, sent messages count as old.

        A claim only keeps two senders apart: without it there are more copies, never fewer. A claim
        younger than `lease_s` seconds is kept: its owner is still sending.
        """
        with self.database() as connection:
            connection.execute(_CLAIMS_END, (CLAIM_S - lease_s, CLAIM_S))
            for statement in _LATER:
                connection.execute(statement)

    def _aws(self, service: str, endpoint: str) -> Any:
        import boto3

        make: Any = boto3.client
        return make(
            service,
            endpoint_url=endpoint,
            region_name=self.info["region"],
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

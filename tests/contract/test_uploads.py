"""One suite for every store of uploads: the twin behaves as S3 does, where it can."""

from __future__ import annotations

import hashlib
import uuid
from base64 import b64encode
from collections.abc import Callable

import boto3
import httpx
import pytest
from botocore.config import Config

from indexmill.contracts.content import UploadRequest
from indexmill.contracts.errors import PermanentError, TransientError
from indexmill.orchestrator.adapters.aws import S3Uploads
from indexmill.orchestrator.submission.uploads import Uploads
from indexmill.platform.aws import clients
from indexmill.platform.aws.s3_blobs import BlobStore
from local.backends.ministack import MiniStack
from tests.support.ministack import REGION
from tests.twins.blobs import InMemoryBlobs
from tests.twins.uploads import InMemoryUploads

WORDS = b"some words"
Put = Callable[[str, dict[str, str], bytes], int]
Store = tuple[Uploads, BlobStore, Put]


def request(data: bytes = WORDS, content_type: str | None = None) -> UploadRequest:
    return UploadRequest(size=len(data), sha256=hashlib.sha256(data).hexdigest(), content_type=content_type)


@pytest.fixture(params=["twin", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    """Return uploads, the blobs of the same bucket, and a way to send content."""
    if request.param == "twin":
        blobs = InMemoryBlobs()

        def keep(url: str, _: dict[str, str], data: bytes) -> int:
            blobs.objects[url] = data
            return 200

        return InMemoryUploads(blobs), blobs, keep
    return s3_store(request.getfixturevalue("ministack"))


def s3_store(server: MiniStack) -> tuple[S3Uploads, BlobStore, Put]:
    """Return uploads and blobs of a new bucket, and a way to send content by a URL."""
    keys = {"region_name": REGION, "aws_access_key_id": "test", "aws_secret_access_key": "test"}
    config = Config(signature_version="s3v4")
    s3 = boto3.client("s3", endpoint_url=server.endpoint, config=config, **keys)  # type: ignore[call-overload]
    bucket = f"uploads-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})

    def put(url: str, headers: dict[str, str], data: bytes) -> int:
        return httpx.put(url, headers=headers, content=data).status_code

    return S3Uploads(bucket, s3), BlobStore(bucket, s3), put


@pytest.mark.parametrize("content_type", [None, "text/plain; charset=windows-1252"])
def test_what_was_sent_is_found_with_its_digest_and_type(store: Store, content_type: str | None) -> None:
    uploads, blobs, put = store
    assert uploads.find("uploads/a/1") is None
    url, headers = uploads.grant("uploads/a/1", request(content_type=content_type), 900)
    assert put(url, headers, WORDS) == 200
    found = uploads.find("uploads/a/1")
    assert found is not None
    assert (found.ref.key, found.ref.size) == ("uploads/a/1", len(WORDS))
    assert found.ref.sha256 == hashlib.sha256(WORDS).hexdigest()
    assert found.content_type == (content_type or "application/octet-stream")
    assert blobs.get(found.ref) == WORDS
    assert uploads.find("uploads/a/2") is None


def test_an_object_of_another_size_or_digest_than_the_message_says_is_not_read(store: Store) -> None:
    uploads, blobs, put = store
    for data in (WORDS, b"other text", b"more than was announced"):
        url, headers = uploads.grant("uploads/a/1", request(data), 900)
        assert put(url, headers, data) == 200
        if data == WORDS:
            first = uploads.find("uploads/a/1")
            assert first is not None
            continue
        with pytest.raises(PermanentError) as refused:
            blobs.get(first.ref)
        assert refused.value.code == "content_corrupt"


def test_s3_refuses_content_of_another_digest_size_or_type(ministack: MiniStack) -> None:
    uploads, _, put = s3_store(ministack)
    url, headers = uploads.grant("uploads/a/1", request(), 900)
    assert headers["x-amz-checksum-sha256"] == b64encode(hashlib.sha256(WORDS).digest()).decode()
    assert put(url, headers, b"other word") == 400
    # The length and the type are in the signature.
    assert put(url, headers, b"other") == 403
    assert put(url, {**headers, "content-type": "text/html"}, WORDS) == 403
    assert uploads.find("uploads/a/1") is None


def test_a_store_without_an_answer_is_unavailable() -> None:
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=1)
    keys = {"region_name": REGION, "aws_access_key_id": "test", "aws_secret_access_key": "test"}
    s3 = boto3.client("s3", endpoint_url="http://127.0.0.1:9", config=config, **keys)  # type: ignore[call-overload]
    with pytest.raises(TransientError) as refused:
        S3Uploads("bucket", s3).find("uploads/a/1")
    assert refused.value.code == "storage_unavailable"


def test_a_url_names_the_endpoint_of_the_buckets_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of all regions redirects, which a signature and a browser's preflight do not survive."""
    for name, value in (
        ("AWS_DEFAULT_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
    ):
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    clients._made.cache_clear()
    signing = clients.client("s3", signs_urls=True)
    clients._made.cache_clear()
    url, _ = S3Uploads("stack-contentbucket-1abc", signing).grant("uploads/a/1", request(), 900)
    assert url.startswith("https://stack-contentbucket-1abc.s3.eu-central-1.amazonaws.com/uploads/a/1?")
    assert "X-Amz-SignedHeaders=content-length%3Bcontent-type%3Bhost%3Bx-amz-checksum-sha256" in url

"""Deletion on the whole local cloud: by the API and the command, to a report that is verified offline."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from indexmill.client import ApiError, Client
from tests.support.stack import RunningStack, eventually, index, indexmill

pytestmark = pytest.mark.e2e

CORPUS = "to-be-deleted"
PAGE, OTHER = "/collections/bookboat.html", "/collections/telescopes.html"


def run(stack: RunningStack, *arguments: str) -> str:
    done = indexmill(*arguments, "--state", stack.state)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def swept(stack: RunningStack) -> bool:
    """Let the sweeper run now, as it does each minute."""
    stack.disturb("OrchestratorSweeperEveryMinute", fire=True)
    return True


@pytest.mark.shows("X11", "P071", "R266")
def test_a_page_and_then_its_corpus_are_deleted_with_reports_that_verify_offline(
    stack: RunningStack, client: Client, http: httpx.Client, tmp_path: Path
) -> None:
    index(client, stack.site + PAGE, CORPUS)
    index(client, stack.site + OTHER, CORPUS)
    key = tmp_path / "key.pem"
    key.write_text(run(stack, "audit", "key"))
    preview = client.preview_deletion(CORPUS, url=stack.site + PAGE)
    assert (preview.documents, preview.confirm) == (1, None)

    job_id = client.delete(CORPUS, url=stack.site + PAGE).job_id
    eventually(lambda: swept(stack) and client.get(job_id).status.terminal, "the deletion has ended", 90)
    report = tmp_path / "report.json"
    report.write_text(http.get(f"/orchestrator/jobs/{job_id}/report").text)
    signed = json.loads(indexmill("audit", "verify", str(report), "--key", str(key), "--json").stdout)
    assert (signed["job_id"], signed["documents"]) == (job_id, 1)
    assert signed["removed"]["chunks"]["before"] > 0
    assert {counts["after"] for counts in signed["removed"].values()} == {0}
    assert [each.url for each in client.all_documents(CORPUS)] == [stack.site + OTHER]

    # A long document leaves its upload, kept vectors and a progress item besides.
    long = tmp_path / "long.txt"
    long.write_text(
        "\n\n".join(f"Paragraph {n} is about harbour {n} and tide {n * 7}. " * 12 for n in range(400))
    )
    (kept,) = client.wait([client.submit_file(long, CORPUS).job_id], 60)
    assert (kept.status, (kept.chunk_count or 0) >= 256) == ("done", True)

    file = tmp_path / "corpus.json"
    with ThreadPoolExecutor(1) as pool:
        command = ("delete", "--everything", "--corpus", CORPUS, "--yes", "--report", str(file))
        deleting = pool.submit(run, stack, *command)
        eventually(lambda: swept(stack) and deleting.done(), "the command has the report", 90)
    assert "Deleted" in deleting.result()
    removed = json.loads(indexmill("audit", "verify", str(file), "--key", str(key), "--json").stdout)[
        "removed"
    ]
    assert removed["uploads/"] == {"before": 1, "after": 0}
    assert indexmill("audit", "verify", str(file), "--key", str(key)).returncode == 0
    with pytest.raises(ApiError) as unknown:
        client.search("boat", CORPUS)
    assert unknown.value.status == 404
    again = index(client, stack.site + PAGE, CORPUS)
    assert again.status == "done"

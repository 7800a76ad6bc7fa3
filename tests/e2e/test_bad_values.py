"""Requests in good JSON with values that are not: types, ranges, URLs, corpus names, filters."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.refusals import (
    BODIES,
    COMPLETE,
    MARK,
    MAY_BE_EMPTY,
    RIVALS,
    UNKNOWN_OBJECTS,
    URL,
    post,
    refused,
)

pytestmark = pytest.mark.e2e

CANCEL, REPLAY = "/orchestrator/jobs/{job_id}/cancel", "/orchestrator/jobs/{job_id}/replay"
RETRY = "/orchestrator/jobs/retry"
JOBS, SCRAPE, ENQUEUE = "/orchestrator/jobs", "/scraper/scrape", "/scraper/enqueue"
CHUNK, CHUNK_LATER, EMBED, EMBED_LATER, SEARCH = (
    "/chunking/chunk",
    "/chunking/enqueue",
    "/embedding/embed",
    "/embedding/enqueue",
    "/embedding/search",
)


@pytest.fixture(scope="module")
def caller(ops: httpx.Client) -> httpx.Client:
    """Return an internal caller: no other is allowed more, so every check is reached."""
    return ops


WRONG: list[tuple[str, str, list[Any]]] = [
    (JOBS, "url", [None, 1, True, {}, [], ""]),
    (JOBS, "urls", [[], "x", [1], ["http://a.example/"] * 101]),
    (JOBS, "corpus_name", [1, [], {}]),
    (JOBS, "priority", [-1, 101, "50", 1.5, None, True]),
    (JOBS, "depends_on", ["x", [1], [None], ["x"], ["x"] * 21, None]),
    (JOBS, "force", [1, "true", None]),
    (CANCEL, "reason", [None, "", "  ", 1, "x" * 501, ["r"]]),
    (RETRY, "limit", [0, 101, "1", True, None]),
    (RETRY, "failed_stage", ["done", 1]),
    (REPLAY, "source", ["", "site", 1]),
    (COMPLETE, "stage", ["done", "", 1, None]),
    (COMPLETE, "status", ["ok", True, None]),
    (COMPLETE, "attempt", [0, -1, 1.5, "1", True, 2**31]),
    (COMPLETE, "error_message", ["x" * 2001, 1]),
    (COMPLETE, "error_code", ["", "no such code", "http_999", "x" * 101, 1]),
    (COMPLETE, "message_id", ["", "x" * 101, "a\x01", "a\ufffe"]),
    (SCRAPE, "url", [None, 1, ""]),
    (SCRAPE, "job_id", ["", 1, "x" * 101, "\x1b[31m"]),
    (ENQUEUE, "url", [None, []]),
    (RETRY, "code", ["", "a\x7f", "x" * 101]),
    (RETRY, "batch_id", ["", "a\x07"]),
    (CHUNK, "text", [None, "", 1, ["x"]]),
    (CHUNK, "title", [1, "x" * 1001]),
    (CHUNK, "settings", [{"max_tokens": 63}, {"max_tokens": 2049}, {"max_tokens": "256"}, {"size": 1}, []]),
    (
        CHUNK,
        "settings",
        [{"max_tokens": 64, "overlap_tokens": 32}, {"overlap_tokens": -1}, {"max_tokens": True}],
    ),
    (CHUNK_LATER, "text", [None, "", 1, ["x"]]),
    (CHUNK_LATER, "title", [1, "x" * 1001]),
    (CHUNK_LATER, "job_id", ["", 1, "x" * 101]),
    (CHUNK_LATER, "attempt", [0, "1", 2**31]),
    (CHUNK_LATER, "settings", [{"max_tokens": 64, "overlap_tokens": 32}, {"size": 1}, []]),
    (EMBED, "texts", [None, [], "x", [1], [""], ["  "], ["x"] * 129, ["x" * 32_001]]),
    (EMBED_LATER, "texts", [[], [""], [None]]),
    (EMBED_LATER, "chunks", [[], [{}], [{"text": ""}], [{"text": "x", "tokens": -1}], ["x"]]),
    (EMBED_LATER, "chunks", [[{name: 2**31, "text": "x"}] for name in ("ordinal", "start", "end", "tokens")]),
    (EMBED_LATER, "attempt", [0, "1", 2**31]),
    (SEARCH, "top_k", [-1, 0, 101, 10**9, 1.5, 10.0, None, "10", True, []]),
    (SEARCH, "query", [1, "", "   ", "x" * 2001, ["words"]]),
    (SEARCH, "query_embedding", [[], ["0.1"], [None], "x"]),
]
CASES = [(path, name, value) for path, name, values in WRONG for value in values]


@pytest.mark.shows("B14", "B29", "B65", "B66", "B82", "B83", "B84")
@pytest.mark.parametrize(
    ("path", "name", "value"), CASES, ids=[f"{path}-{name}-{str(value)[:20]}" for path, name, value in CASES]
)
def test_a_value_of_the_wrong_kind_is_422(caller: httpx.Client, path: str, name: str, value: Any) -> None:
    body = {key: sound for key, sound in BODIES[path].items() if key != RIVALS.get(name)}
    answer = post(caller, path, json={**body, name: value})
    refused(answer, 422, "validation_error", path)
    assert answer.json()["error"].get("field", "body").startswith("body")


@pytest.mark.shows("B29")
@pytest.mark.parametrize(
    ("path", "name"),
    [(path, name) for path, body in BODIES.items() if path not in MAY_BE_EMPTY for name in body],
    ids=lambda each: each,
)
def test_a_missing_value_is_422(caller: httpx.Client, path: str, name: str) -> None:
    body = {key: value for key, value in BODIES[path].items() if key != name}
    refused(post(caller, path, json=body), 422, "validation_error", path)


SCHEME, INVALID = "url_scheme_not_allowed", "url_invalid"
HOST, CREDENTIALS = "url_host_not_allowed", "url_credentials_not_allowed"
# Words, for str.split; the odd digits are full-width and circled ones.
OTHER_SCHEMES = """file:///etc/passwd ftp://a.example/ gopher://a.example/ data:,x javascript:alert(1)
    ws://a.example/ s3://bucket/key"""
NO_URLS = f"""{MARK} x //a.example/x http:/a.example http:///x HTTP:a.example http://evil.example\\@a.example/
    http://a.example:80abc/ http://a.example:65536/ http://xn--a.example/ http://[::1/"""
PRIVATE_HOSTS = """127.0.0.1 localhost localhost. 0.0.0.0 0 2130706433 0x7f000001 0x7f.1 127.1 0177.0.0.1
    \uff11\uff12\uff17.0.0.1 \u2460\u2461\u2466.\u24ea.\u24ea.\u2460 [::1] [::] [::ffff:127.0.0.1]
    [64:ff9b::7f00:1] [2002:7f00:1::] [fec0::1] [fd00:ec2::254] 169.254.169.254 2852039166 169.254.170.2
    metadata.google.internal instance-data 127.0.0.1:9001/2018-06-01/runtime/invocation/next
    localhost:2773/secretsmanager/get 10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1 198.18.0.1 192.0.0.1
    224.0.0.1 255.255.255.255 a.example:22 a.example:6379"""
URLS = {
    SCHEME: OTHER_SCHEMES.split(),
    INVALID: [
        *NO_URLS.split(),
        *("   ", "http://a.example/\r\nX: y", "http://a b.example/", f"http://{'a' * 64}.example/"),
    ],
    CREDENTIALS: ["http://user:pw@a.example/", "http://a@b@c.example/", "http://a.example#@evil.example/"],
    HOST: [f"http://{host}/" for host in PRIVATE_HOSTS.split()],
}
REFUSED_URLS = [(url, code) for code, urls in URLS.items() for url in urls]


@pytest.mark.shows("B29")
@pytest.mark.shows("S10")
@pytest.mark.parametrize("path", [JOBS, SCRAPE, ENQUEUE, EMBED, EMBED_LATER])
def test_a_url_that_is_not_public_and_plain_is_422(caller: httpx.Client, path: str) -> None:
    for url, code in REFUSED_URLS:
        refused(post(caller, path, json={**BODIES[path], "url": url}), 422, code, path)


def test_one_wrong_url_refuses_the_whole_batch(caller: httpx.Client) -> None:
    good, corpus = BODIES[JOBS]["url"], "refused-batch"
    answer = caller.post(JOBS, json={"urls": [good, "http://10.0.0.1/"], "corpus_name": corpus})
    refused(answer, 422, HOST, JOBS)
    assert answer.json()["error"]["field"] == "body.urls.1"
    assert caller.get(JOBS, params={"corpus_name": corpus}).json()["count"] == 0


CORPORA = [
    "",
    "x" * 64,
    "../x",
    "a/b",
    "*",
    "a,b",
    "_all",
    "-x",
    "+x",
    ".",
    "..",
    ".kibana",
    "UPPER",
    "a b",
    "a?b",
]
CORPORA += ["#", "é", "%2e", "<x-{now/d}>", "x\n", "x\t"]


@pytest.mark.shows("B63")
@pytest.mark.parametrize("path", [JOBS, EMBED, EMBED_LATER, SEARCH])
def test_a_corpus_name_out_of_the_alphabet_is_422(caller: httpx.Client, path: str) -> None:
    about = {"url": BODIES[JOBS]["url"]} if path == EMBED else {}
    for name in CORPORA:
        body = {**BODIES[path], **about, "corpus_name": name}
        refused(post(caller, path, json=body), 422, "corpus_name_invalid", path)


FILTERS: dict[str, list[str]] = {
    "limit": ["0", "-1", "201", "abc", "1_0", " 10 ", "\u0661\u0660", "1e9", str(2**63), "", "5.0", "+5"],
    "status": ["bogus", "DONE", ""],
    "cursor": [MARK, "WzEsMl0=", "bnVsbA==", "x" * 301, "W10=", "é", "%00"],
    "created_after": ["yesterday", "2026-13-01", "x" * 100],
    "created_before": ["now()"],
    "failed_stage": ["x" * 21, "foo", ""],
    "url": ["a\x00b", "\x7f"],
    "code": ["x" * 101, "\x00", "a\x1fb", "\ufffe"],
    "batch_id": ["\x00", "\n"],
    "unknown": ["1"],
    "limit[]": ["1"],
}


@pytest.mark.shows("B9", "B10", "B69", "B70")
@pytest.mark.parametrize(("name", "values"), FILTERS.items(), ids=FILTERS)
def test_a_filter_that_makes_no_sense_is_422(caller: httpx.Client, name: str, values: list[str]) -> None:
    for value in values:
        answer = caller.get(JOBS, params={name: value})
        refused(answer, 422, "validation_error", JOBS)
        assert answer.json()["error"]["field"] == ("query.?" if name == "limit[]" else f"query.{name}")


@pytest.mark.shows("B69", "B70")
@pytest.mark.parametrize("path", [JOBS, "/orchestrator/jobs/{job_id}", "/orchestrator/batches/{batch_id}"])
def test_a_parameter_that_is_unknown_or_sent_twice_is_422(caller: httpx.Client, path: str) -> None:
    asked = path.format(**UNKNOWN_OBJECTS)
    for query, field in (
        ("foo=1", "query.foo"),
        ("receipt=true&receipt=true", "query.receipt"),
        (f"{MARK}%20=1", "query.?"),
        ("receipt=true&%00=1", "query.?"),
    ):
        answer = caller.get(f"{asked}?{query}")
        refused(answer, 422, "validation_error", path)
        assert answer.json()["error"]["field"] == field
    posted = caller.post(f"{SCRAPE}?url=x", json=BODIES[SCRAPE])
    refused(posted, 422, "validation_error", SCRAPE)


@pytest.mark.shows("B9", "B10", "B23")
@pytest.mark.parametrize("odd", ["%00", "a%00b", "%1b%5b31m", "%7f", "%0a", "%ef%bf%be"])
def test_a_control_character_in_a_path_is_422(caller: httpx.Client, odd: str) -> None:
    for path in ("/orchestrator/jobs/{job_id}", "/orchestrator/batches/{batch_id}"):
        answer = caller.get(path.format(job_id=odd, batch_id=odd))
        refused(answer, 422, "validation_error", path)
        assert answer.json()["error"]["field"].startswith("path")


@pytest.mark.shows("B30")
@pytest.mark.parametrize("path", [JOBS, SCRAPE, ENQUEUE, EMBED, EMBED_LATER])
@pytest.mark.parametrize("length", [2049, 10_000])
def test_a_url_that_is_too_long_has_a_code_of_its_own(caller: httpx.Client, path: str, length: int) -> None:
    url = "https://a.example/".ljust(length, "x")
    answer = post(caller, path, json={**BODIES[path], "url": url})
    refused(answer, 422, "url_invalid", path)
    assert answer.json()["error"]["field"] == "body.url"


@pytest.mark.shows("B30")
def test_a_long_url_of_a_list_or_a_filter_has_that_code_too(caller: httpx.Client) -> None:
    url = "https://a.example/".ljust(2049, "x")
    answer = caller.post(JOBS, json={"urls": [URL, url]})
    refused(answer, 422, "url_invalid", JOBS)
    assert answer.json()["error"]["field"] == "body.urls.1"
    refused(caller.get(JOBS, params={"url": url}), 422, "url_invalid", JOBS)


@pytest.mark.shows("B63")
def test_a_corpus_filter_out_of_the_alphabet_is_422(caller: httpx.Client) -> None:
    for name in CORPORA:
        code = "corpus_name_invalid" if name.isprintable() else "validation_error"
        refused(caller.get(JOBS, params={"corpus_name": name}), 422, code, JOBS)


@pytest.mark.shows("B70")
@pytest.mark.shows("S1")
def test_a_cursor_of_another_caller_shows_nothing_of_theirs(caller: httpx.Client, http: httpx.Client) -> None:
    http.post(JOBS, json={"urls": ["https://a.invalid/", "https://b.invalid/"], "corpus_name": "cursors"})
    cursor = http.get(JOBS, params={"limit": 1}).json()["next_cursor"]
    mine = {job["job_id"] for job in caller.get(JOBS, params={"limit": 200}).json()["jobs"]}
    page = caller.get(JOBS, params={"limit": 200, "cursor": cursor})
    assert page.status_code == 200
    assert {job["job_id"] for job in page.json()["jobs"]} <= mine


@pytest.mark.shows("B66")
@pytest.mark.parametrize(
    "query", ["*:* OR _exists_", '{"match_all":{}}', "🦉🦉", "the of and", "'; DROP TABLE jobs; --", "%_\\"]
)
def test_an_odd_query_is_only_words(http: httpx.Client, query: str) -> None:
    published = http.post(
        EMBED, json={"texts": ["plain words"], "url": "https://a.example/", "corpus_name": "odd"}
    )
    assert published.status_code == 200
    answer = http.post(SEARCH, json={"query": query, "corpus_name": "odd"})
    assert (answer.status_code, len(answer.json()["results"])) == (200, 1)


@pytest.mark.shows("B9")
def test_wrong_texts_with_nul_are_no_server_error(caller: httpx.Client) -> None:
    for path, name in (
        (JOBS, "url"),
        (CHUNK, "text"),
        (CHUNK_LATER, "text"),
        (SEARCH, "query"),
        (JOBS, "corpus_name"),
    ):
        refused(post(caller, path, json={**BODIES[path], name: f"{MARK}\x00"}), 422, "validation_error", path)

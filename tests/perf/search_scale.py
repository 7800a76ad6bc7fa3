"""Benchmark of search at size: `make bench-search-scale TEXTS=DIR`; ARGS names the parts, and their sizes.

DIR has text or HTML files, for example those of Debian's packages python3.11-doc, postgresql-doc-15 and
linux-doc-6.1: `apt-get download PACKAGE`, `dpkg -x FILE DIR`. They are cut into chunks of 150 words, and
embedded by the laptop's model; questions are words that follow one another somewhere in them.

* `latency`: the use case over a corpus of `--chunks`, as it was written and after VACUUM ANALYZE, beside its
  own statements sent straight to the server, and beside those of a release before (`--against REVISION`).
  Filters that 1, 10 and 50 % of the documents meet are compared with none: at most 3 times as long.
* `recall`: share of the exact nearest ten that vector mode finds among `--vectors`, all in one corpus, in ten
  corpora, and in a corpus of a tenth among 999 small ones.
* `http`: whole answers of the local cloud over a corpus of `--chunks`.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import psycopg
from psycopg.rows import dict_row

from indexmill.client import Client
from indexmill.contracts.content import Chunk
from indexmill.contracts.http_search import Mode, SearchFilter, SearchRequest
from indexmill.contracts.messages import Target
from indexmill.embedding.adapters.pgvector import search
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.adapters.pgvector.statements import ROW_RANGES
from indexmill.embedding.analyzer import count_terms
from indexmill.embedding.ports import SearchQuery, Vector
from indexmill.embedding.ranking import K1, B, weights
from indexmill.embedding.search import SearchCorpus
from indexmill.platform.postgres.database import Database, load
from indexmill.platform.time import SystemClock
from local.backends.postgres import EmbeddedPostgres, create_database
from local.backends.wordllama_model import WordLlamaModel
from sql.build_index import build_due
from sql.migrate import migrate
from tests.perf.doc_texts import SPACE, WORDS, Embedder, chunks_of, questions_of
from tests.perf.machine import Watch
from tests.perf.stack_under_test import REPOSITORY, stack
from tests.support.index_builders import target, with_vectors

PER_DOCUMENT: Final = 10
BATCH: Final = 10
TOP_K: Final = 10
WARM_UP: Final = 10
SMALL: Final = 999
FILTERS: Final = (1, 10, 50)
"""Percent of documents that match."""
SQL_FILE: Final = "layers/indexmill/python/indexmill/embedding/adapters/pgvector/index.sql"
Rows = psycopg.Connection[Any]


def publish(
    index: PgVectorIndex, embedder: Embedder, texts: Sequence[str], at: Callable[[int], Target]
) -> None:
    """Publish the chunks as documents of ten."""
    size = PER_DOCUMENT * BATCH
    for first in range(0, len(texts), size):
        versions = []
        for start in range(first, min(first + size, len(texts)), PER_DOCUMENT):
            own = texts[start : start + PER_DOCUMENT]
            chunks = [
                Chunk(ordinal=number, text=text, start=0, end=len(text), tokens=len(text) // 4)
                for number, text in enumerate(own)
            ]
            versions.append(with_vectors(at(start), chunks, SPACE, embedder.embed(own)))
            for percent in FILTERS:
                share = 100 // percent
                versions[-1].metadata = {
                    **(versions[-1].metadata or {}),
                    f"of_{share}": str(start // 10 % share),
                }
        index.publish(versions)


def latency(server: str, embedder: Embedder, texts: Sequence[str], against: str | None, count: int) -> None:
    """Print the times of searches, of their statements alone, and of those of a release before."""
    url = create_database(server, "latency")
    migrate(url)
    before = None if against is None else _statements_at(against)
    with (
        closing(Database(url)) as database,
        psycopg.connect(url, autocommit=True, prepare_threshold=None) as own,
    ):
        index, began = PgVectorIndex(database), time.monotonic()
        publish(index, embedder, texts, lambda number: target(f"https://site.example/{number}"))
        print(f"latency: {len(texts)} chunks written in {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        if build_due(url):
            print(f"latency: vector index built in {time.monotonic() - began:.0f} s")
        asked = questions_of(texts, count)
        for state in ("as written", "analyzed"):
            if state == "analyzed":
                own.execute("VACUUM ANALYZE")
            for mode in (Mode.HYBRID, Mode.KEYWORD, Mode.VECTOR):
                _compare(index, embedder, own, before, asked, mode, f"{state:10} {mode:8}")
        for mode in (Mode.HYBRID, Mode.KEYWORD, Mode.VECTOR):
            _filtered(index, embedder, asked, mode)


def _compare(
    index: PgVectorIndex,
    embedder: Embedder,
    own: Rows,
    before: dict[str, Any] | None,
    asked: Sequence[str],
    mode: Mode,
    name: str,
) -> None:
    whole = SearchCorpus(index, embedder, SystemClock())
    times: dict[str, list[float]] = {"search": [], "statements": [], "before": []}
    key = target().corpus_key
    for number, question in enumerate([*asked[:WARM_UP], *asked]):
        text = None if mode == Mode.VECTOR else question
        vector = None if mode == Mode.KEYWORD else embedder.embed([question])[0]
        recorder = _Recorder(own)
        lists = search.lists(recorder, SearchQuery([key], SPACE, text, vector))  # type: ignore[arg-type]
        best = [each.chunk_id for each in (lists.keyword or lists.vector)[:TOP_K]]
        search.hits(recorder, [key], best)  # type: ignore[arg-type]
        whole.vectors._kept.clear()
        request = SearchRequest(query=question, mode=mode, top_k=TOP_K)
        runs: dict[str, Callable[[], object]] = {
            "search": lambda: whole(target().caller_id, request),  # noqa: B023 - run in this round
            "statements": recorder.again,
        }
        if before is not None:
            runs["before"] = lambda: _as_before(own, before, key, text, vector)  # noqa: B023
        for kind, run in runs.items():
            start = time.perf_counter()
            run()
            if number >= WARM_UP:
                times[kind].append(1_000 * (time.perf_counter() - start))
    figures = "  ".join(
        f"{kind} p50 {median(found):6.2f} p99 {_p99(found):6.2f}" for kind, found in times.items() if found
    )
    ratios = f"search/statements {median(times['search']) / median(times['statements']):.2f}"
    if times["before"]:
        ratios += f"  statements/before {median(times['statements']) / median(times['before']):.2f}"
    print(f"{name} {figures} ms  {ratios}")


def _filtered(index: PgVectorIndex, embedder: Embedder, asked: Sequence[str], mode: Mode) -> None:
    """Print the times of searches by filter, and their ratio to those without one."""
    whole, figures = SearchCorpus(index, embedder, SystemClock()), []
    times: dict[int, list[float]] = {percent: [] for percent in (100, *FILTERS)}
    for number, question in enumerate([*asked[:WARM_UP], *asked]):
        for percent, found in times.items():
            wanted = None if percent == 100 else SearchFilter(metadata={f"of_{100 // percent}": "0"})
            start = time.perf_counter()
            whole(target().caller_id, SearchRequest(query=question, mode=mode, top_k=TOP_K, filter=wanted))
            if number >= WARM_UP:
                found.append(1_000 * (time.perf_counter() - start))
    for percent in FILTERS:
        ratio = median(times[percent]) / median(times[100])
        figures.append(f"{percent} % p50 {median(times[percent]):6.2f} ratio {ratio:.2f}")
    print(f"filter     {mode:8} none p50 {median(times[100]):6.2f}  {'  '.join(figures)}")


class _Recorder:
    """A connection that remembers what was executed on it."""

    def __init__(
        self, connection: Rows, executed: list[tuple[Any, Any]] | None = None, **options: Any
    ) -> None:
        self.connection, self.options = connection, options
        self.executed: list[tuple[Any, Any]] = [] if executed is None else executed

    def cursor(self, **options: Any) -> _Recorder:
        return _Recorder(self.connection, self.executed, **options)

    def execute(self, statement: Any, values: Any = None) -> Any:
        self.executed.append((statement, values))
        return self.connection.cursor(**self.options).execute(statement, values)

    def again(self) -> None:
        """Execute the same statements, and fetch their rows, without anything of ours around them."""
        for statement, values in self.executed:
            self.connection.execute(statement, values).fetchall()


def _statements_at(revision: str) -> dict[str, Any]:
    """Return the statements of the index at a revision."""
    command = ["git", "-C", str(REPOSITORY), "show", f"{revision}:{SQL_FILE}"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "index.sql").write_text(shown.stdout)
        return load(Path(folder), {"stripes": 16, "range_limit": 64})


def _as_before(own: Rows, sql: dict[str, Any], key: str, text: str | None, vector: Vector | None) -> None:
    """Execute what a search executed while lists were fused by rank: 100 candidates a list."""
    values: dict[str, Any] = {"key": key, "model": SPACE.model, "dimension": SPACE.dimension, "depth": 100}
    totals = own.cursor(row_factory=dict_row).execute(sql["corpus_totals"], values).fetchone() or {}
    values |= {"corpus": totals["corpus"], "space": totals["space"]}
    rows: list[tuple[Any, ...]] = []
    if text is not None:
        terms = count_terms(text)
        span = totals["last_row"] - totals["first_row"]
        ranges = {"first": totals["first_row"], "last": totals["last_row"], "width": span // ROW_RANGES + 1}
        found = dict(
            own.execute(sql["term_frequencies"], values | ranges | {"terms": list(terms)}).fetchall()
        )
        weight = weights(terms, found, totals["chunks"])
        values |= {"base": K1 * (1 - B), "slope": K1 * B * totals["chunks"] / totals["words"]}
        values |= {"terms": list(weight), "weights": list(weight.values())}
        rows += own.execute(sql["rank_by_words"], values).fetchall()
    if vector is not None:
        values["vector"] = f"[{','.join(map(repr, vector))}]"
        indexed = totals["indexed_rows"] if totals["chunks"] >= search.EXACT_LIMIT else 0
        values["probes"] = max(16, search.lists_of(indexed) // 16)
        rows += own.execute(sql["nearest_approximate" if indexed else "nearest_exact"], values).fetchall()
    own.execute(sql["hits"], values | {"rows": [row[0] for row in rows[:TOP_K]]}).fetchall()


def recall(server: str, embedder: Embedder, texts: Sequence[str], count: int) -> None:
    """Print how many of the exact nearest ten vector mode finds, in corpora of different sizes."""
    vectors, questions = embedder.rows(texts), embedder.rows(questions_of(texts, count))
    tenth = len(texts) // 10
    rest = len(texts) - tenth
    layouts = {
        "one corpus": [len(texts)],
        "ten corpora": [tenth] * 10,
        f"one of {tenth} among {SMALL} small": [tenth, *(rest // SMALL for _ in range(SMALL))],
    }
    for name, sizes in layouts.items():
        url = create_database(server, f"recall_{len(sizes)}")
        migrate(url)
        with closing(Database(url)) as database:
            _write_vectors(url, vectors, sizes)
            began = time.monotonic()
            build_due(url)
            built = time.monotonic() - began
            index = PgVectorIndex(database)
            asked = [(0, 1)] if len(sizes) != 10 else [(0, 1), (7, 8), (0, 10)]
            for first, last in asked:
                start, end = sum(sizes[:first]), sum(sizes[:last])
                keys = [target(corpus=f"c{number}").corpus_key for number in range(first, last)]
                own = vectors[start:end]
                shares, times = [], []
                for question in questions:
                    exact = set((np.argpartition(-(own @ question), TOP_K)[:TOP_K] + start).tolist())
                    query = SearchQuery(keys, SPACE, None, question.tolist())
                    began = time.perf_counter()
                    found = index.lists(query).vector[:TOP_K]
                    times.append(1_000 * (time.perf_counter() - began))
                    shares.append(len(exact & {int(each.chunk_id, 16) for each in found}) / TOP_K)
                print(
                    f"recall@10 {name}, {len(keys)} searched: {np.mean(shares):.4f}  "
                    f"p50 {median(times):.1f} p99 {_p99(times):.1f} ms  (index built in {built:.0f} s)"
                )


def _write_vectors(url: str, vectors: np.ndarray[Any, Any], sizes: Sequence[int]) -> None:
    """Write the vectors as chunks that have nothing else: it is the index of vectors that is measured."""
    with psycopg.connect(url, autocommit=True) as own, own.cursor() as cursor:
        (space,) = cursor.execute(
            "INSERT INTO spaces (model, dimension) VALUES (%s, %s) RETURNING id",
            (SPACE.model, SPACE.dimension),
        ).fetchall()[0]
        corpora, first = [], 0
        for number, size in enumerate(sizes):
            to = target(corpus=f"c{number}")
            cursor.execute(
                "INSERT INTO corpora (corpus_key, caller_id, name) VALUES (%s, %s, %s) RETURNING id",
                (to.corpus_key, to.caller_id, to.corpus_name),
            )
            (corpus,) = cursor.fetchall()[0]
            corpora.append((corpus, first, size))
            cursor.execute(
                "INSERT INTO corpus_totals (corpus, stripe, chunks, words, first_chunk, last_chunk)"
                " VALUES (%s, 0, %s, %s, %s, %s)",
                (corpus, size, size * WORDS, first, first + size - 1),
            )
            first += size
        columns = (
            "id, corpus, document, tokens, words, terms, analyzer_version, chunk_id, language, context, text"
        )
        with cursor.copy(f"COPY chunks ({columns}) FROM STDIN") as rows:
            for corpus, start, size in corpora:
                for at in range(start, start + size):
                    rows.write_row((at, corpus, corpus, 1, 1, 1, 1, at.to_bytes(32, "big"), "en", "", ""))
        dimension = vectors.shape[1]
        size = 4 + 2 * dimension
        packed = vectors.astype(">f2")
        with cursor.copy("COPY vectors (corpus, space, chunk, embedding) FROM STDIN (FORMAT BINARY)") as rows:
            rows.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
            for corpus, start, count in corpora:
                for at in range(start, start + count):
                    head = (4, 4, corpus, 4, space, 4, at, size, dimension, 0)
                    rows.write(struct.pack(">hiiiiiiihh", *head) + packed[at].tobytes())
            rows.write(b"\xff\xff")


def http(embedder: Embedder, texts: Sequence[str], count: int) -> None:
    """Print the times of whole answers of the local cloud, each for a question that is new."""
    with stack([]) as started:
        info = started.info
        client = Client(info["gateway"], info["api_key"])
        client.wait(client.submit([info["site"] + "/handbook.html"]).job_ids, 120)
        with psycopg.connect(info["database_url"]) as own:
            found = own.execute("SELECT caller_id, name, corpus_key FROM corpora").fetchall()
        ((caller_id, name, key),) = found
        with closing(Database(info["database_url"])) as database:

            def at(number: int) -> Target:
                made = target(f"https://site.example/{number}", name, caller_id)
                return made.model_copy(update={"corpus_key": key})

            publish(PgVectorIndex(database), embedder, texts, at)
        build_due(info["database_url"])
        asked = questions_of(texts, count + WARM_UP)
        for mode in ("hybrid", "keyword", "vector"):
            times = []
            for number, question in enumerate(asked):
                start = time.perf_counter()
                client.search(f"{question} {mode}", top_k=TOP_K, mode=mode)  # type: ignore[arg-type]
                if number >= WARM_UP:
                    times.append(1_000 * (time.perf_counter() - start))
            figures = f"p50 {median(times):6.2f} p99 {_p99(times):6.2f} ms"
            print(f"http {len(texts)} chunks {mode:8} {figures}")


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def main() -> int:
    """Measure the parts that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=("latency", "recall", "http"))
    parser.add_argument("--texts", type=Path, required=True, metavar="DIR")
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--vectors", type=int, default=200_000)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--against", metavar="REVISION", help="release whose statements are compared")
    options = parser.parse_args()
    machine, embedder = Watch(), Embedder(WordLlamaModel.from_wheel())
    with tempfile.TemporaryDirectory(prefix="indexmill-bench-") as folder:
        server = EmbeddedPostgres(Path(folder), settings={"autovacuum": "off"})
        try:
            url = server.start()
            for part in options.parts:
                texts = chunks_of(options.texts, options.vectors if part == "recall" else options.chunks)
                if part == "latency":
                    latency(url, embedder, texts, options.against, options.questions)
                elif part == "recall":
                    recall(url, embedder, texts, options.questions)
                else:
                    http(embedder, texts, options.questions)
        finally:
            server.delete()
    print("\n".join(machine.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

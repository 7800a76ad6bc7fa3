"""Benchmark of search: quality and latency on a real Postgres.

    python tests/perf/search_quality.py --collections DIR --names cranfield cisi
    python tests/perf/search_quality.py --latency 20000

DIR holds a `load.py` whose `load(name)` returns documents {id: (title, text)}, queries {id: text} and
judgements {query id: {document id: gain}}. Documents are split and embedded as jobs are; a document ranks
with its best chunk. Keyword search is compared with bm25s over the same chunks and analyzer: exit status 1
when nDCG@10 or Recall@100 differ by more than 0.01.

Latency is measured on three copies of one corpus, in turn: as it was written (autovacuum is off: no
statistics), after ANALYZE, and after VACUUM ANALYZE. The ratio is the first p50 over the second: at most 1.3.
A filter of so many percent is met by as many documents; its ratio is that to the p50 without one: at most 3.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "layers/indexmill/python")]

import bm25s  # noqa: E402
import psycopg  # noqa: E402

from indexmill.chunking.adapters.model_tokenizer import ModelTokenizer  # noqa: E402
from indexmill.chunking.worker import ChunkDocuments  # noqa: E402
from indexmill.contracts.content import Chunk, ChunkSettings, chunk_ids  # noqa: E402
from indexmill.contracts.http_search import SearchFilter  # noqa: E402
from indexmill.contracts.identity import corpus_key, document_id  # noqa: E402
from indexmill.contracts.messages import Target  # noqa: E402
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex  # noqa: E402
from indexmill.embedding.analyzer import analyze  # noqa: E402
from indexmill.embedding.ports import DocumentVersion, SearchQuery, Space  # noqa: E402
from indexmill.embedding.ranking import K1, B, Order, ordered  # noqa: E402
from indexmill.embedding.search import page  # noqa: E402
from indexmill.platform.aws.s3_blobs import BlobStore  # noqa: E402
from indexmill.platform.postgres.database import Database  # noqa: E402
from local.backends.model_files import DIMENSIONS, MODEL_ID, tokenizer_path  # noqa: E402
from local.backends.postgres import EmbeddedPostgres, create_database  # noqa: E402
from local.backends.wordllama_model import WordLlamaModel  # noqa: E402
from sql.migrate import migrate  # noqa: E402
from tests.perf.machine import Watch  # noqa: E402

Judgements = Mapping[str, Mapping[str, int]]
TOLERANCE = 0.01
SPACE = Space("bench", 256)
WORDS_PER_CHUNK = 190
CHUNKS_PER_DOCUMENT = 10
BATCH = 10
WARM_UP = 20
FILTERS = (1, 10, 50)
"""Percent of documents that match."""


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--collections", type=Path)
    parser.add_argument("--names", nargs="+", default=["cranfield", "cisi"])
    parser.add_argument("--latency", type=int, metavar="CHUNKS")
    options = parser.parse_args()
    if options.collections is None and options.latency is None:
        parser.error("give --collections, --latency or both")
    good = True
    machine = Watch()
    with tempfile.TemporaryDirectory(prefix="indexmill-bench-") as folder:
        server = EmbeddedPostgres(Path(folder), settings={"autovacuum": "off"})
        try:
            url = server.start()
            migrate(create_database(url, "migrated"))
            if options.collections is not None:
                found = create_database(url, "quality", template="migrated")
                for name in options.names:
                    good &= quality(found, options.collections, name)
            if options.latency is not None:
                latency(url, options.latency)
        finally:
            server.delete()
    print("\n".join(machine.lines()))
    return 0 if good else 1


def quality(url: str, folder: Path, name: str) -> bool:
    """Search one collection, split and embedded as jobs are; return whether keywords do as well as bm25s."""
    documents, queries, judged = _loader(folder)(name)
    index, model = PgVectorIndex(Database(url)), WordLlamaModel.from_wheel()
    split = ChunkDocuments(ModelTokenizer(tokenizer_path()), BlobStore("none"))
    space = Space(MODEL_ID, DIMENSIONS)
    chunks = {
        key: split.one(text or title, title, ChunkSettings())
        for key, (title, text) in documents.items()
        if text or title
    }
    corpus = _target(name, "").corpus_key
    keys = list(chunks)
    for at in range(0, len(keys), BATCH):
        index.publish(
            [_published(_target(name, key), chunks[key], space, model) for key in keys[at : at + BATCH]]
        )

    def find(question: str, vector: Sequence[float] | None) -> list[str]:
        ranked = ordered(
            index.lists(SearchQuery([corpus], space, question, vector)), Order(vector is not None)
        )
        hits = page(index, [corpus], ranked, 100)
        return list(dict.fromkeys(hit.source_url for _, hit in hits))

    pieces = [(key, chunk.embedded_text) for key in keys for chunk in chunks[key]]
    reference = bm25s.BM25(method="lucene", k1=K1, b=B)
    reference.index([analyze(text) for _, text in pieces], show_progress=False)

    def theirs(question: str) -> list[str]:
        rows, scores = reference.retrieve([analyze(question)], k=min(100, len(pieces)), show_progress=False)
        found = (pieces[row][0] for row, score in zip(rows[0], scores[0], strict=True) if score > 0)
        return list(dict.fromkeys(found))

    mine = _scores(lambda question: find(question, None), queries, judged)
    bar = _scores(theirs, queries, judged)
    both = _scores(lambda question: find(question, _embedded(model, [question])[0]), queries, judged)
    print(f"{name}: {len(pieces) / len(keys):.2f} chunks a document")
    for kind, (gain, recall) in (("keyword", mine), ("bm25s", bar), ("hybrid", both)):
        print(f"{name:10} {kind:8} nDCG@10 {gain:.4f} Recall@100 {recall:.4f}")
    return all(abs(a - b) <= TOLERANCE for a, b in zip(mine, bar, strict=True))


def latency(url: str, chunks: int) -> None:
    """Measure writing a corpus of `chunks` made-up chunks, and search with and without statistics."""
    rng = random.Random(7)
    fresh = create_database(url, "fresh", template="migrated")
    with psycopg.connect(fresh, autocommit=True) as watch, closing(Database(fresh)) as database:
        _write(PgVectorIndex(database), watch, rng, chunks)
    urls = {"fresh": fresh}
    for name, command in (("analyzed", "ANALYZE"), ("vacuumed", "VACUUM ANALYZE")):
        urls[name] = create_database(url, name, template="fresh")
        with psycopg.connect(urls[name], autocommit=True) as connection:
            connection.execute(command.encode())
    indexes = {name: PgVectorIndex(Database(one)) for name, one in urls.items()}
    words = [_word(rng) for _ in range(2_000)]
    texts = [" ".join(rng.choice(words) for _ in range(rng.randint(3, 12))) for _ in range(200)]
    questions = [(text, _vector(rng, rng.randrange(50))) for text in texts]
    for top_k in (10, 100):
        for kind in ("hybrid", "keyword", "vector"):
            times = _times(indexes, kind, questions, top_k, None)
            figures = "  ".join(
                f"{name} p50 {median(own):6.2f} p99 {_p99(own):6.2f}" for name, own in times.items()
            )
            ratio = median(times["fresh"]) / median(times["analyzed"])
            print(f"{kind:8} top {top_k:3}  {figures} ms  fresh/analyzed {ratio:.2f}")
            for percent in FILTERS if top_k == 10 else ():
                wanted = SearchFilter(metadata={f"of_{100 // percent}": "0"})
                filtered = _times(indexes, kind, questions, top_k, wanted)
                figures = "  ".join(
                    f"{name} p50 {median(own):6.2f} ratio {median(own) / median(times[name]):.2f}"
                    for name, own in filtered.items()
                )
                print(f"{kind:8} filter of {percent} %  {figures}")


def _times(
    indexes: Mapping[str, PgVectorIndex],
    kind: str,
    questions: Sequence[tuple[str, list[float]]],
    top_k: int,
    wanted: SearchFilter | None,
) -> dict[str, list[float]]:
    """Ask every index each question in turn; return milliseconds by index, without the first questions."""
    key = _target("latency", "").corpus_key
    times: dict[str, list[float]] = {name: [] for name in indexes}
    for number, (text, vector) in enumerate([*questions[:WARM_UP], *questions]):
        wanted_text, wanted_vector = None if kind == "vector" else text, None if kind == "keyword" else vector
        query = SearchQuery([key], SPACE, wanted_text, wanted_vector, wanted)
        for name, index in indexes.items():
            start = time.perf_counter()
            page(index, [key], ordered(index.lists(query), Order(kind == "hybrid")), top_k)
            if number >= WARM_UP:
                times[name].append(1_000 * (time.perf_counter() - start))
    return times


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def _write(
    index: PgVectorIndex, watch: psycopg.Connection[tuple[object, ...]], rng: random.Random, chunks: int
) -> None:
    documents = chunks // CHUNKS_PER_DOCUMENT
    wall = client = server = 0.0
    for at in range(0, documents, BATCH):
        versions = [_made_up(rng, number) for number in range(at, min(at + BATCH, documents))]
        used, ticks, start = time.process_time(), _backend_cpu(watch), time.perf_counter()
        index.publish(versions)
        wall += time.perf_counter() - start
        client += time.process_time() - used
        server += _backend_cpu(watch) - ticks
    per = 1e3 / documents
    print(f"wrote {chunks} chunks: {chunks / wall:.0f} chunks/s")
    print(f"CPU per document: client {client * per:.2f} ms, server {server * per:.2f} ms")


def _made_up(rng: random.Random, number: int) -> DocumentVersion:
    """A document whose words repeat as those of real pages do: about 85 different ones in a chunk of 190."""
    topic = rng.randrange(50)
    own = [_word(rng) for _ in range(60)]
    texts = []
    for _ in range(CHUNKS_PER_DOCUMENT):
        words = [rng.choice(own) if rng.random() < 0.6 else _word(rng) for _ in range(WORDS_PER_CHUNK)]
        texts.append(" ".join(words))
    vectors = [_vector(rng, topic) for _ in texts]
    chunks = [
        Chunk(ordinal=at, text=text, start=0, end=len(text), tokens=len(text) // 4)
        for at, text in enumerate(texts)
    ]
    made = _version(_target("latency", f"https://site.example/{number}"), chunks, SPACE, vectors)
    made.metadata = {f"of_{100 // percent}": str(number % (100 // percent)) for percent in FILTERS}
    return made


def _word(rng: random.Random) -> str:
    """A word of a vocabulary of 30,000, by Zipf's law; the commonest are stop words, as in English."""
    rank = int(30_000 ** rng.random())
    return "the" if rank < 20 else f"w{rank}q"


def _vector(rng: random.Random, topic: int) -> list[float]:
    centre = random.Random(topic)
    raw = [centre.gauss(0, 1) + rng.gauss(0, 1) for _ in range(SPACE.dimension)]
    length = math.hypot(*raw)
    return [number / length for number in raw]


def _target(corpus: str, url: str) -> Target:
    key = corpus_key("bench", corpus)
    return Target(
        caller_id="bench", corpus_name=corpus, corpus_key=key, document_id=document_id(key, url), url=url
    )


def _published(
    target: Target, chunks: Sequence[Chunk], space: Space, model: WordLlamaModel
) -> DocumentVersion:
    vectors = _embedded(model, [chunk.embedded_text for chunk in chunks])
    return _version(target, chunks, space, vectors)


def _embedded(model: WordLlamaModel, texts: Sequence[str]) -> list[list[float]]:
    return [[float(number) for number in row] for row in model.embed(model.tokenize(texts))]


def _version(
    target: Target, chunks: Sequence[Chunk], space: Space, vectors: Sequence[Sequence[float]]
) -> DocumentVersion:
    ids = chunk_ids(target.document_id, list(chunks))
    kept = dict(zip(ids, vectors, strict=True))
    return DocumentVersion(target, 1, None, None, None, space, list(chunks), ids, kept)


def _scores(
    run: Callable[[str], list[str]], queries: Mapping[str, str], judged: Judgements
) -> tuple[float, float]:
    """Mean nDCG@10 with binary gains, and mean Recall@100."""
    gains, recalls = [], []
    for query, relevant in judged.items():
        found = run(queries[query])
        dcg = sum(1 / math.log2(at + 2) for at, key in enumerate(found[:10]) if key in relevant)
        gains.append(dcg / sum(1 / math.log2(at + 2) for at in range(min(10, len(relevant)))))
        recalls.append(len(set(found[:100]) & set(relevant)) / len(relevant))
    return mean(gains), mean(recalls)


def _loader(folder: Path) -> Callable[[str], tuple[dict[str, tuple[str, str]], dict[str, str], Judgements]]:
    spec = importlib.util.spec_from_file_location("collection_loader", folder / "load.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"no load.py in {folder}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    load: Callable[[str], tuple[dict[str, tuple[str, str]], dict[str, str], Judgements]] = module.load
    return load


def _backend_cpu(watch: psycopg.Connection[tuple[object, ...]]) -> float:
    """Seconds of CPU of all client backends but the watcher's own (0 where /proc is missing)."""
    pids = watch.execute(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    ).fetchall()
    total = 0
    for (pid,) in pids:
        status = Path(f"/proc/{pid}/stat")
        if status.exists():
            fields = status.read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())

"""Benchmark of search quality on judged collections: `make bench-search COLLECTION=DIR`, or several.

DIR has the files of one collection, as they are published: documents, queries and judgements in the form of
SMART (`.I`, `.T`, `.W`; Cranfield, CISI, CACM, Medline) or TREC (`<DOC>`, `<top>`, qrels). Documents are
split, embedded and published as jobs do it, and rank by their best chunk; each list has 200, as in the API.

Keyword, vector and hybrid search are printed beside bm25s over the same chunks and analyzer, with the
difference of each to keyword search for the same queries: its mean, and the middle 95 % of 10,000 bootstrap
samples. The figures of other weights and depths are printed, and change no default. Exit status 1: keyword
search differs by more than .01 from bm25s, or hybrid search is more than .005 below keyword search.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import bm25s
import numpy as np

from indexmill.chunking.adapters.model_tokenizer import ModelTokenizer
from indexmill.chunking.worker import ChunkDocuments
from indexmill.contracts.content import ChunkSettings
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.analyzer import analyze
from indexmill.embedding.ports import POOL, Lists, SearchQuery, Space
from indexmill.embedding.ranking import K1, B, Order, ordered
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.postgres.database import Database
from local.backends.model_files import DIMENSIONS, MODEL_ID, tokenizer_path
from local.backends.postgres import EmbeddedPostgres, create_database
from local.backends.wordllama_model import WordLlamaModel
from sql.migrate import migrate
from tests.perf.machine import Watch
from tests.support.index_builders import target, with_vectors

SPACE: Final = Space(MODEL_ID, DIMENSIONS)
TOLERANCE: Final = 0.01
LEAST_GAIN: Final = -0.005
SAMPLES: Final = 10_000
BATCH: Final = 10
WEIGHTS: Final = (0.1, 0.2, 0.3, 0.4, 0.5)
DEPTHS: Final = (50, 100, 200)
_FIELD: Final = re.compile(r"\.([A-Z])(?:\s+(\d+))?\s*$")
_NO_INTEREST: Final = ("-1", "0", "5")
"""Codes of Cranfield's judgements for documents that are not relevant."""


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents with title and text, queries, and the relevant documents of each query."""

    name: str
    documents: Mapping[str, tuple[str, str]]
    queries: Mapping[str, str]
    relevant: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Scores:
    """Figures of one kind of search, a number for each query."""

    gains: np.ndarray[tuple[int], np.dtype[np.float64]]
    """nDCG@10 with binary gains."""
    recalls: np.ndarray[tuple[int], np.dtype[np.float64]]
    """Recall@100."""


def collection(folder: Path) -> Collection:
    """Read a collection. Raises SystemExit for a folder that has none."""
    records: list[list[dict[str, str]]] = []
    rows: list[list[str]] = []
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        text = file.read_text("latin-1").replace("\r\n", "\n")
        head = text.lstrip()[:500]
        if head.startswith(".I "):
            records.append(list(_smart(text)))
        elif head.startswith(("<DOC>", "<top>")):
            records.append(list(_trec(text)))
        elif re.match(r"\S+\s+\S+\s+-?\w", head) and re.match(r"\d+\s+\d+\s", head):
            rows += [line.split() for line in text.splitlines() if len(line.split()) > 2]
    if len(records) < 2 or not rows:
        raise SystemExit(f"{folder} has no documents, queries and judgements in the form of SMART or TREC")
    records.sort(key=lambda found: sum(len(each["W"]) for each in found))
    queries, by_id = records[0], {each["I"]: (each["T"], each["W"]) for part in records[1:] for each in part}
    by_id = {key: texts for key, texts in by_id.items() if any(texts)}
    relevant: dict[str, set[str]] = {}
    for query, document in _judged(rows):
        if document in by_id:
            relevant.setdefault(query, set()).add(document)
    asked = {each["I"]: each["T"] if not each["W"] else each["W"] for each in queries}
    if not set(relevant) <= set(asked):
        # Cranfield's judgements number the queries by their position.
        asked = {str(at): each["W"] for at, each in enumerate(queries, 1)}
    judged = {query: frozenset(found) for query, found in relevant.items() if asked.get(query)}
    return Collection(folder.name, by_id, {query: asked[query] for query in judged}, judged)


def _smart(text: str) -> Iterator[dict[str, str]]:
    record, field = {"I": "", "T": "", "W": ""}, ""
    for line in text.split("\n"):
        found = _FIELD.match(line)
        if found and found[1] == "I" and found[2]:
            if record["I"]:
                yield _stripped(record)
            record, field = {"I": _number(found[2]), "T": "", "W": ""}, ""
        elif found and not found[2]:
            field = found[1]
        elif field in record:
            record[field] += line + "\n"
    yield _stripped(record)


def _trec(text: str) -> Iterator[dict[str, str]]:
    for part in re.findall(r"<(?:DOC|top)>(.*?)</(?:DOC|top)>", text, re.DOTALL):
        number = re.search(r"<(?:DOCNO|num)>\s*(?:Number:)?\s*(\S+?)\s*(?:<|\n)", part)
        title = re.search(r"<(?:TITLE|HEADLINE|title)>(?:\s*Topic:)?(.*?)(?=<)", part + "<", re.DOTALL)
        bodies = re.findall(r"<TEXT>(.*?)</TEXT>", part, re.DOTALL)
        body = re.sub(r"<[^>]*>", " ", " ".join(bodies))
        yield _stripped(
            {"I": _number(number[1]) if number else "", "T": title[1] if title else "", "W": body}
        )


def _stripped(record: dict[str, str]) -> dict[str, str]:
    return {name: value.strip() for name, value in record.items()}


def _judged(rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield each query with a document that is relevant for it."""
    of_trec = all(row[1] == "0" for row in rows)
    for row in rows:
        if of_trec:
            if int(row[3]) > 0:
                yield _number(row[0]), _number(row[2])
        elif len(row) > 3 or row[2] not in _NO_INTEREST:
            yield _number(row[0]), _number(row[1])


def _number(text: str) -> str:
    return str(int(text)) if text.isdecimal() else text


def main() -> int:
    """Measure every collection of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("collections", nargs="+", type=Path, metavar="DIR")
    found = [collection(folder) for folder in parser.parse_args().collections]
    machine, model, good = Watch(), WordLlamaModel.from_wheel(), True
    means: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="indexmill-bench-") as folder:
        server = EmbeddedPostgres(Path(folder))
        try:
            url = create_database(server.start(), "quality")
            migrate(url)
            with closing(Database(url)) as database:
                for each in found:
                    scores = measured(PgVectorIndex(database), model, each)
                    good &= printed(each, scores)
                    for kind, of_kind in scores.items():
                        means.setdefault(kind, []).append((of_kind.gains.mean(), of_kind.recalls.mean()))
        finally:
            server.delete()
    print(f"mean of {len(found)} collections")
    for kind, figures in means.items():
        print(
            f"  {kind:26} nDCG@10 {np.mean([a for a, _ in figures]):.4f}  "
            f"Recall@100 {np.mean([b for _, b in figures]):.4f}"
        )
    print("\n".join(machine.lines()))
    return 0 if good else 1


def measured(index: PgVectorIndex, model: WordLlamaModel, judged: Collection) -> dict[str, Scores]:
    """Index a collection and search it; return the scores of each kind of search."""
    pieces = _published(index, model, judged)
    document = {chunk_id: key for chunk_id, key, _ in pieces}
    corpus = target("", judged.name).corpus_key
    lists = {
        query: index.lists(SearchQuery([corpus], SPACE, text, _embedded(model, [text])[0]))
        for query, text in judged.queries.items()
    }

    def ranking(depth: int, order: Order, keyword: bool = True, vector: bool = True) -> Scores:
        def one(query: str) -> list[str]:
            all_of_it = lists[query]
            part = Lists(
                all_of_it.keyword[:depth] if keyword else [],
                all_of_it.vector[:depth] if vector else [],
                all_of_it.ceiling,
                all_of_it.other_model,
            )
            return [document[each.chunk_id] for each in ordered(part, order)]

        return _scores(one, judged)

    alone = Order(hybrid=False, one_per_document=True)
    found = {
        "bm25s": _scores(_bm25s(pieces, judged.queries), judged),
        "keyword": ranking(POOL, alone, vector=False),
        "vector": ranking(POOL, alone, keyword=False),
        "hybrid": ranking(POOL, Order(hybrid=True, one_per_document=True)),
    }
    for depth in DEPTHS:
        for weight in WEIGHTS:
            order = Order(hybrid=True, vector_weight=weight, one_per_document=True)
            found[f"  weight {weight:.1f} depth {depth}"] = ranking(depth, order)
    return found


def printed(judged: Collection, scores: Mapping[str, Scores]) -> bool:
    """Print the figures of a collection; return whether they are as good as they have to be."""
    count = len(judged.documents)
    print(f"{judged.name}: {count} documents, {len(judged.queries)} queries")
    base, good = scores["keyword"], True
    for kind, found in scores.items():
        gains, recalls = found.gains - base.gains, found.recalls - base.recalls
        figures = f"nDCG@10 {found.gains.mean():.4f} {_difference(gains)}"
        print(f"  {kind:26} {figures}  Recall@100 {found.recalls.mean():.4f} {_difference(recalls)}")
        if kind == "bm25s":
            good &= max(abs(gains.mean()), abs(recalls.mean())) <= TOLERANCE
        if kind == "hybrid":
            good &= gains.mean() >= LEAST_GAIN
    return good


def _difference(pairs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """Return the mean of paired differences, and the middle 95 % of its bootstrap samples."""
    draw = np.random.default_rng(1)
    means = pairs[draw.integers(0, len(pairs), (SAMPLES, len(pairs)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return f"{pairs.mean():+.4f} [{low:+.4f}, {high:+.4f}]"


def _published(index: PgVectorIndex, model: WordLlamaModel, judged: Collection) -> list[tuple[str, str, str]]:
    """Split, embed and publish the documents; return the id, document and text of each chunk."""
    split = ChunkDocuments(ModelTokenizer(tokenizer_path()), BlobStore("none"))
    pieces: list[tuple[str, str, str]] = []
    keys = list(judged.documents)
    for at in range(0, len(keys), BATCH):
        versions = []
        for key in keys[at : at + BATCH]:
            title, text = judged.documents[key]
            chunks = split.one(text or title, title, ChunkSettings())
            texts = [chunk.embedded_text for chunk in chunks]
            made = with_vectors(target(key, judged.name), chunks, SPACE, _embedded(model, texts))
            pieces += [(chunk_id, key, text) for chunk_id, text in zip(made.chunk_ids, texts, strict=True)]
            versions.append(made)
        index.publish(versions)
    print(f"{judged.name}: {len(pieces) / len(keys):.2f} chunks a document")
    return pieces


def _embedded(model: WordLlamaModel, texts: Sequence[str]) -> list[list[float]]:
    return [[float(number) for number in row] for row in model.embed(model.tokenize(texts))]


def _bm25s(pieces: Sequence[tuple[str, str, str]], queries: Mapping[str, str]) -> Callable[[str], list[str]]:
    reference = bm25s.BM25(method="lucene", k1=K1, b=B)
    reference.index([analyze(text) for _, _, text in pieces], show_progress=False)

    def found(query: str) -> list[str]:
        asked = [analyze(queries[query])]
        rows, scores = reference.retrieve(asked, k=min(POOL, len(pieces)), show_progress=False)
        ranked = (pieces[row][1] for row, score in zip(rows[0], scores[0], strict=True) if score > 0)
        return list(dict.fromkeys(ranked))

    return found


def _scores(run: Callable[[str], list[str]], judged: Collection) -> Scores:
    gains, recalls = [], []
    for query, relevant in judged.relevant.items():
        found = run(query)
        dcg = sum(1 / math.log2(at + 2) for at, key in enumerate(found[:10]) if key in relevant)
        gains.append(dcg / sum(1 / math.log2(at + 2) for at in range(min(10, len(relevant)))))
        recalls.append(len(set(found[:100]) & relevant) / len(relevant))
    return Scores(np.array(gains), np.array(recalls))


if __name__ == "__main__":
    sys.exit(main())
